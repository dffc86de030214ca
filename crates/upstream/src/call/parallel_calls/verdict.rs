//! The verdicts on one replica, by server version.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How many server versions a replica remembers. A replica has more than one while an address leads
/// to servers of different versions.
const MAX_VERSIONS: usize = 8;

/// The longest name or version of a server that is told apart from others.
const MAX_NAME_CHARS: usize = 128;

/// How many calls of one upstream session a server can handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Any number at a time.
    Parallel,
    /// One at a time.
    Serial(SerialReason),
}

/// Why a server gets one call at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SerialReason {
    /// The check has shown that the server loses or mixes up parallel answers.
    Check,
    /// The check could not be completed. It is repeated later.
    CheckFailed,
    /// The server is known to have the fault.
    Fingerprint,
    /// The server sent a wrong answer to a call, or none.
    WrongAnswer,
}

impl SerialReason {
    /// The name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::CheckFailed => "check_failed",
            Self::Fingerprint => "fingerprint",
            Self::WrongAnswer => "wrong_answer",
        }
    }
}

impl Verdict {
    /// Returns true if the verdict can be replaced by a later one: all but the proof that the
    /// server has the fault.
    fn may_change(self) -> bool {
        matches!(self, Self::Parallel | Self::Serial(SerialReason::CheckFailed))
    }

    /// Returns the verdict that holds if `next` is found after this one.
    pub(super) fn then(self, next: Self) -> Self {
        if self.may_change() { next } else { self }
    }
}

/// What a server calls itself: name and version, as the JSON text of its `serverInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerTag(Arc<str>);

impl ServerTag {
    /// Reads the tag from the result of `initialize`.
    pub(crate) fn of_server(initialize_result: &[u8]) -> Self {
        #[derive(Default, Deserialize)]
        struct InitializeResult {
            #[serde(rename = "serverInfo", default)]
            info: Info,
        }
        #[derive(Default, Serialize, Deserialize)]
        struct Info {
            #[serde(default)]
            name: String,
            #[serde(default)]
            version: String,
        }
        let mut info = serde_json::from_slice::<InitializeResult>(initialize_result).unwrap_or_default().info;
        for text in [&mut info.name, &mut info.version] {
            *text = text.chars().take(MAX_NAME_CHARS).collect();
        }
        // Strings always serialise.
        Self(serde_json::to_string(&info).unwrap_or_default().into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ServerTag {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// What this node knows about one replica.
#[derive(Debug, Default)]
pub(crate) struct KnownVerdicts {
    known: Mutex<Vec<Known>>,
    is_checking: AtomicBool,
}

#[derive(Debug)]
struct Known {
    server: ServerTag,
    verdict: Verdict,
    until: Instant,
}

/// The right to check a replica. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct CheckGuard<'a>(&'a AtomicBool);

impl KnownVerdicts {
    pub(crate) fn get(&self, server: &ServerTag) -> Option<Verdict> {
        let known = self.known();
        let found = known.iter().find(|known| known.server == *server)?;
        (Instant::now() < found.until).then_some(found.verdict)
    }

    /// Records a verdict. A proof that the server has the fault is kept until it expires. Returns
    /// the verdict that holds now, if that is a change.
    pub(super) fn set(&self, server: &ServerTag, verdict: Verdict, until: Instant) -> Option<Verdict> {
        let mut known = self.known();
        let now = Instant::now();
        let at = known.iter().position(|known| known.server == *server);
        let before = at.map(|at| known.remove(at)).filter(|before| now < before.until);
        let (verdict, until) = match &before {
            Some(before) if before.verdict.then(verdict) != verdict => (before.verdict, before.until),
            _ => (verdict, until),
        };
        if known.len() == MAX_VERSIONS {
            known.remove(0);
        }
        known.push(Known { server: server.clone(), verdict, until });
        (before.is_none_or(|before| before.verdict != verdict)).then_some(verdict)
    }

    /// Returns the verdict on the newest server version.
    pub(crate) fn newest(&self) -> Option<Verdict> {
        let known = self.known();
        known.last().filter(|known| Instant::now() < known.until).map(|known| known.verdict)
    }

    /// Returns `None` if a check is running.
    pub(super) fn begin_check(&self) -> Option<CheckGuard<'_>> {
        (!self.is_checking.swap(true, Ordering::AcqRel)).then(|| CheckGuard(&self.is_checking))
    }

    fn known(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CheckGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SERIAL: Verdict = Verdict::Serial(SerialReason::WrongAnswer);
    const FAILED: Verdict = Verdict::Serial(SerialReason::CheckFailed);

    #[tokio::test(start_paused = true)]
    async fn only_a_proof_of_the_fault_stays_until_it_expires() {
        let (verdicts, server) = (KnownVerdicts::default(), ServerTag::from("a"));
        let until = Instant::now() + Duration::from_secs(60);
        let set = |verdict| verdicts.set(&server, verdict, until);
        assert_eq!((verdicts.get(&server), set(FAILED)), (None, Some(FAILED)));
        assert_eq!(set(Verdict::Parallel), Some(Verdict::Parallel));
        assert_eq!(set(Verdict::Parallel), None, "no change");
        assert_eq!(set(SERIAL), Some(SERIAL));
        assert_eq!((set(Verdict::Parallel), verdicts.get(&server)), (None, Some(SERIAL)));
        assert_eq!(verdicts.get(&ServerTag::from("b")), None, "another version");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(verdicts.get(&server), None);
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(verdicts.set(&server, Verdict::Parallel, later), Some(Verdict::Parallel));
    }

    #[test]
    fn one_task_checks_and_versions_are_bounded() {
        let verdicts = KnownVerdicts::default();
        let guard = verdicts.begin_check();
        assert!(guard.is_some() && verdicts.begin_check().is_none());
        drop(guard);
        assert!(verdicts.begin_check().is_some());
        let until = Instant::now() + Duration::from_secs(60);
        let tag = |no: usize| ServerTag::from(no.to_string().as_str());
        for no in 0..=MAX_VERSIONS {
            verdicts.set(&tag(no), Verdict::Parallel, until);
        }
        assert_eq!((verdicts.get(&tag(0)), verdicts.get(&tag(1))), (None, Some(Verdict::Parallel)));
    }

    #[test]
    fn a_tag_is_name_and_version() {
        let tag = |text: &str| ServerTag::of_server(text.as_bytes());
        let one = tag(r#"{"capabilities":{},"serverInfo":{"version":"1","name":"a","title":"x"}}"#);
        assert_eq!(one.as_str(), r#"{"name":"a","version":"1"}"#);
        assert_eq!(one, tag(&format!(r#"{{"serverInfo":{}}}"#, one.as_str())));
        assert_eq!(tag("{}"), tag("nonsense"));
        let long = "x".repeat(MAX_NAME_CHARS + 1);
        assert!(tag(&format!(r#"{{"serverInfo":{{"name":"{long}"}}}}"#)).as_str().len() < 200);
    }
}
