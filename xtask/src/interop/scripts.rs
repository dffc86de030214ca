//! The scripts: which server each is played against, and its steps, in order. `interop/README.md` says what each is about.

pub(super) const SCRIPTS: &[&Script] = &[&DEMO];

/// One client, whose connections are cut, and a server that is killed.
pub(super) const DEMO: Script = Script {
    name: "demo",
    package: "steadfast-gateway",
    program: "steadfast",
    arguments: &["serve", "--demo"],
    steps: &[
        "initialize",
        "progress",
        "logs",
        "notebook",
        "parallel",
        "refused",
        "dropped-early",
        "dropped-midway",
        "dropped-twice",
        "cancelled",
        "restarted",
        "terminated",
    ],
};

#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    /// The server.
    pub(super) package: &'static str,
    pub(super) program: &'static str,
    pub(super) arguments: &'static [&'static str],
    pub(super) steps: &'static [&'static str],
}
