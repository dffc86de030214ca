//! The scripts that clients run: the server of each, and its steps in order. `interop/README.md`
//! explains the steps.

pub(super) const SCRIPTS: &[&Script] = &[&DEMO, &ERAS, &DEMO_ERAS, &SERVER_REQUESTS];

/// One client. Its connections are cut, and its server is killed.
pub(super) const DEMO: Script = Script {
    name: "demo",
    program: "steadfast",
    arguments: &["serve", "--demo"],
    steps: &[
        "initialize",
        "progress",
        "logs",
        "notebook",
        "parallel",
        "fortune",
        "council",
        "refused",
        "dropped-early",
        "dropped-midway",
        "dropped-twice",
        "cancelled",
        "restarted",
        "terminated",
    ],
};

/// Two clients at once, one with a session and one without. The server sends requests to both.
pub(super) const ERAS: Script = Script {
    name: "eras",
    steps: &[
        "connect",
        "elicitation",
        "declined",
        "sampling",
        "roots",
        "rounds",
        "parallel-requests",
        "together",
        "progress",
        "logs",
        "changes",
        "cancelled",
        "reconnection",
        "refused",
        "closed",
    ],
    ..FIXTURE
};

/// The demo, with a session and without.
pub(super) const DEMO_ERAS: Script =
    Script { name: "demo-eras", steps: &["connect", "countdown", "fortune", "council"], ..DEMO };

/// How an older SDK handles several server requests at once.
pub(super) const SERVER_REQUESTS: Script =
    Script { name: "server-requests", steps: &["parallel-requests"], ..FIXTURE };

const FIXTURE: Script = Script { name: "", program: "steadfast-fixture", arguments: &[], steps: &[] };

#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    /// The server.
    pub(super) program: &'static str,
    pub(super) arguments: &'static [&'static str],
    pub(super) steps: &'static [&'static str],
}
