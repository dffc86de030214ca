//! The scripts: which server each is played against, and its steps, in order. `interop/README.md` says what each is about.

pub(super) const SCRIPTS: &[&Script] = &[&DEMO, &ERAS, &DEMO_ERAS, &ASKS];

/// One client, whose connections are cut, and a server that is killed.
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

/// Two clients at once, one with a session and one without, that are asked things.
pub(super) const ERAS: Script = Script {
    name: "eras",
    steps: &[
        "connect",
        "elicitation",
        "declined",
        "sampling",
        "roots",
        "rounds",
        "parallel-asks",
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

/// How an older SDK takes several questions at once.
pub(super) const ASKS: Script = Script { name: "asks", steps: &["parallel-asks"], ..FIXTURE };

const FIXTURE: Script = Script { name: "", program: "steadfast-fixture", arguments: &[], steps: &[] };

#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    /// The server.
    pub(super) program: &'static str,
    pub(super) arguments: &'static [&'static str],
    pub(super) steps: &'static [&'static str],
}
