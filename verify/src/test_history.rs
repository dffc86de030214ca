//! Builds histories for tests. Every step takes ten milliseconds.

use crate::{Bounds, CHECKERS, Digest, Entry, Seen, Verdict, mark};

pub(crate) const STEP: u64 = 10;
pub(crate) const BOUNDS: Bounds = Bounds { liveness: 100, ending: 100, death: 100 };
/// The session part of the event ids.
const TAG: &str = "00000001";

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    entries: Vec<Entry>,
    now: u64,
}

impl History {
    /// A history with one session, `s`.
    pub(crate) fn new() -> Self {
        Self::default().and(Seen::Opened { session: "s".into() })
    }

    pub(crate) fn and(mut self, seen: Seen) -> Self {
        self.now += STEP;
        self.entries.push(Entry { at: self.now, seen });
        self
    }

    pub(crate) fn wait(mut self, ms: u64) -> Self {
        self.now += ms;
        self
    }

    /// A call of session `s` is sent. Tools whose names start with `safe` are idempotent.
    pub(crate) fn sent(self, call: &str, id: i64, tool: &str) -> Self {
        self.sent_in("s", call, id, tool)
    }

    pub(crate) fn sent_in(self, session: &str, call: &str, id: i64, tool: &str) -> Self {
        let safe = tool.starts_with("safe");
        let (call, session, tool) = (call.into(), session.into(), tool.into());
        self.and(Seen::Sent { call, session, id, tool, safe })
    }

    /// The call is accepted, and its stream is read on this connection.
    pub(crate) fn accepted(self, call: &str, connection: u64) -> Self {
        let accepted = self.and(Seen::Accepted { call: call.into() });
        let session = Digest::of(&accepted.entries).session_of(call).expect("it was sent").to_owned();
        let of = Some(call.to_owned());
        accepted.and(Seen::Connected { connection, session, of, after: None })
    }

    pub(crate) fn resumed(self, call: Option<&str>, connection: u64, stream: u64, seq: u64) -> Self {
        let (of, after) = (call.map(str::to_owned), Some(format!("{stream}-{seq}-{TAG}")));
        self.and(Seen::Connected { connection, session: "s".into(), of, after })
    }

    pub(crate) fn listening(self, connection: u64) -> Self {
        self.and(Seen::Connected { connection, session: "s".into(), of: None, after: None })
    }

    pub(crate) fn event(self, connection: u64, stream: u64, seq: u64, data: &str) -> Self {
        let id = Some(format!("{stream}-{seq}-{TAG}"));
        self.and(Seen::Event { connection, id, data: data.into() })
    }

    /// A result with the mark of the call and this text.
    pub(crate) fn result(
        self,
        connection: u64,
        stream: u64,
        seq: u64,
        id: i64,
        call: &str,
        text: &str,
    ) -> Self {
        let data = format!(r#"{{"id":{id},"result":"{} {text}"}}"#, mark(call));
        self.event(connection, stream, seq, &data)
    }

    pub(crate) fn error(self, connection: u64, stream: u64, seq: u64, id: i64, reason: &str) -> Self {
        let data =
            format!(r#"{{"id":{id},"error":{{"code":-32603,"message":"","data":{{"reason":"{reason}"}}}}}}"#);
        self.event(connection, stream, seq, &data)
    }

    pub(crate) fn executed(self, call: &str, place: &str) -> Self {
        self.and(Seen::Executed { call: call.into(), tool: String::new(), place: place.into() })
    }

    pub(crate) fn done(self, call: &str, place: &str) -> Self {
        self.and(Seen::Done { call: call.into(), place: place.into() })
    }

    /// A whole call: sent, accepted, executed, answered.
    pub(crate) fn whole(self, no: u64, call: &str, tool: &str, place: &str, text: &str) -> Self {
        let id = i64::try_from(no).expect("a small number");
        let begun = self.sent(call, id, tool).accepted(call, no).event(no, no, 0, "").executed(call, place);
        begun.result(no, no, 1, id, call, &format!("{text} at={place}")).and(Seen::Ended { connection: no })
    }
}

/// Runs a checker in a test. `expect` contains the call or session of each violation, in order. The
/// checker must have checked something.
#[track_caller]
pub(crate) fn check(name: &str, history: &History, expect: &[&str]) {
    let digest = Digest::of(&history.entries);
    let (name, promise, checker) = CHECKERS.iter().find(|(known, ..)| *known == name).expect("a checker");
    let mut verdict = Verdict::new(name, promise);
    checker(&digest, &BOUNDS, &mut verdict);
    let found: Vec<&str> = verdict.violations.iter().map(|violation| violation.of.as_str()).collect();
    assert_eq!(found, expect, "{:?}", verdict.violations);
    assert!(verdict.checks > 0, "the checker has checked nothing");
}
