//! Watches the configuration file, and decides when to reload it: when a file has changed, and on
//! SIGHUP.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::config_inputs;
use super::failure::Failure;
use crate::config::{self, ConfigFault, Override, Plan};

/// How often the files are compared with what was read last.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A configuration file that is reloaded when it changes.
pub(crate) struct ConfigWatcher {
    file: PathBuf,
    flags: Vec<Override>,
    /// The configuration file and the files that it names, as they were read last.
    watched: Vec<WatchedFile>,
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
}

/// A file and the SHA-256 of its content; `None` if the file could not be read. Modification times
/// are too coarse to detect every change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WatchedFile {
    path: PathBuf,
    digest: Option<[u8; 32]>,
}

impl ConfigWatcher {
    /// Receives SIGHUP from now on.
    pub(crate) fn new(file: PathBuf, flags: Vec<Override>) -> Self {
        Self {
            file,
            flags,
            watched: Vec::new(),
            #[cfg(unix)]
            hangup: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
        }
    }

    /// Waits until the configuration should be read again. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        let watched: Vec<WatchedFile> = self.watched.clone();
        let changed = async {
            loop {
                tokio::time::sleep(CHECK_INTERVAL).await;
                if watched.iter().any(|before| *before != WatchedFile::read(&before.path)) {
                    return;
                }
            }
        };
        tokio::select! {
            () = changed => {}
            () = self.hung_up() => {}
        }
    }

    /// Reads the configuration. After a fault `changed` waits for the next change.
    pub(crate) fn read(&mut self) -> Result<Plan, Failure> {
        let source = config_inputs::read_source(Some(&self.file));
        let text = source.as_ref().ok().map(|source| source.text.as_bytes());
        self.watched.retain(|watched| watched.path != self.file);
        self.watched.iter_mut().for_each(|watched| *watched = WatchedFile::read(&watched.path));
        self.watched.push(WatchedFile { path: self.file.clone(), digest: text.map(digest) });
        let plan =
            config::load(&source?, &self.flags, &config_inputs::environment()).map_err(Failure::Config)?;
        self.watched.retain(|watched| watched.path == self.file);
        self.watched.extend(plan.files().map(|path| WatchedFile::read(path)));
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

impl WatchedFile {
    fn read(path: &Path) -> Self {
        let digest = config_inputs::read_file(path).ok().map(|text| digest(text.as_bytes()));
        Self { path: path.to_owned(), digest }
    }
}

fn digest(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

pub(crate) fn log_warnings(plan: &Plan) {
    for ConfigFault { position, key, what, remedy } in &plan.warnings {
        tracing::warn!(%position, key, what, remedy, "the configuration may not work");
    }
}

pub(crate) fn log_failed_reload(failure: &Failure) {
    match failure {
        Failure::Config(faults) => {
            for ConfigFault { position, key, what, remedy } in faults {
                tracing::error!(%position, key, what, remedy, "the new configuration has a fault; the old one stays in use");
            }
        }
        other => {
            let (what, remedy) = other.describe();
            tracing::error!(what, remedy, "cannot use the new configuration; the old one stays in use");
        }
    }
}
