//! When to read the configuration again: when it has changed, and when somebody says so (SIGHUP).

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::config::{self, Fault, Override, Plan};
use crate::failure::Failure;
use crate::world;

/// How often to look whether files have changed.
const LOOK: Duration = Duration::from_secs(1);

/// A configuration file that is followed.
pub(crate) struct Followed {
    file: PathBuf,
    flags: Vec<Override>,
    /// The file and those that it names, as they were when they were last read.
    seen: Vec<Mark>,
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
}

/// What was in a file; nothing, if it could not be read. Times of change are too coarse to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    path: PathBuf,
    digest: Option<[u8; 32]>,
}

impl Followed {
    /// From now on, so that nothing is missed between the first reading and the next.
    pub(crate) fn new(file: PathBuf, flags: Vec<Override>) -> Self {
        Self {
            file,
            flags,
            seen: Vec::new(),
            #[cfg(unix)]
            hangup: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
        }
    }

    /// Waits until there is a reason to read the configuration again. Can be dropped and called again.
    pub(crate) async fn reason(&mut self) {
        let seen: Vec<Mark> = self.seen.clone();
        let changed = async {
            loop {
                tokio::time::sleep(LOOK).await;
                if seen.iter().any(|before| *before != Mark::of(&before.path)) {
                    return;
                }
            }
        };
        tokio::select! {
            () = changed => {}
            () = self.hung_up() => {}
        }
    }

    /// Reads it. One with faults is not read again until it has changed.
    pub(crate) fn read(&mut self) -> Result<Plan, Failure> {
        let source = world::source(Some(&self.file));
        let text = source.as_ref().ok().map(|source| source.text.as_bytes());
        self.seen.retain(|mark| mark.path != self.file);
        self.seen.iter_mut().for_each(|mark| *mark = Mark::of(&mark.path));
        self.seen.push(Mark { path: self.file.clone(), digest: text.map(digest) });
        let plan = config::load(&source?, &self.flags, &world::world()).map_err(Failure::Config)?;
        self.seen.retain(|mark| mark.path == self.file);
        self.seen.extend(plan.files().map(|path| Mark::of(path)));
        Ok(plan)
    }

    #[cfg(unix)]
    async fn hung_up(&mut self) {
        match &mut self.hangup {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }

    #[cfg(not(unix))]
    async fn hung_up(&mut self) {
        std::future::pending().await
    }
}

impl Mark {
    fn of(path: &Path) -> Self {
        let digest = world::read(path).ok().map(|text| digest(text.as_bytes()));
        Self { path: path.to_owned(), digest }
    }
}

fn digest(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// Says what is wrong with a configuration that is taken all the same.
pub(crate) fn warn(plan: &Plan) {
    for Fault { place, key, what, remedy } in &plan.warnings {
        tracing::warn!(%place, key, what, remedy, "the configuration may not work");
    }
}

/// Says why a configuration is not taken.
pub(crate) fn report(failure: &Failure) {
    match failure {
        Failure::Config(faults) => {
            for Fault { place, key, what, remedy } in faults {
                tracing::error!(%place, key, what, remedy, "the new configuration has a fault; the old one stays");
            }
        }
        other => {
            let (what, remedy) = other.describe();
            tracing::error!(what, remedy, "the new configuration cannot be used; the old one stays");
        }
    }
}
