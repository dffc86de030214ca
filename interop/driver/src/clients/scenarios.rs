//! The table of scenarios: the calls of each, and what happens meanwhile.

use std::time::Duration;

use super::catalogue::Kind;
use super::outcome::Repeat;

/// To add a scenario, add a row.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new("plain", Fault::None, ONE),
    Scenario::new("cut", Fault::Cut { times: 1 }, ONE),
    Scenario::new("cut twice", Fault::Cut { times: 2 }, ONE),
    Scenario::new("gateway killed", Fault::GatewayKilled, WRITE_AND_READ),
    Scenario::new("server killed", Fault::ServerKilled, WRITE_AND_READ),
    Scenario::new("server restarted", Fault::ServerRestartedBefore, ONE),
    Scenario::new("parallel", Fault::None, Calls::Parallel(20)),
    Scenario::new("token refreshed", Fault::NotYet, ONE),
    Scenario::new("pause", Fault::Pause(Duration::from_secs(330)), ONE),
];

const ONE: Calls = Calls::Each(&[("write", HOLD)]);
const WRITE_AND_READ: Calls = Calls::Each(&[("write", HOLD), ("read", SAFE_HOLD)]);

/// A tool of the server that waits until the driver releases it.
pub(super) const HOLD: Tool = Tool { name: "hold", repeat: Repeat::Forbidden };
/// Declared read-only.
const SAFE_HOLD: Tool = Tool { name: "safe_hold", repeat: Repeat::Allowed };

#[derive(Clone, Copy, Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) repeat: Repeat,
}

#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) fault: Fault,
    pub(super) calls: Calls,
}

/// The calls of a scenario, which all run at the same time.
#[derive(Debug)]
pub(super) enum Calls {
    /// Each has a key and a column of the table.
    Each(&'static [(&'static str, Tool)]),
    /// So many calls of [`HOLD`]. The column shows the worst outcome.
    Parallel(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// All connections are cut while the call runs, and again after the client has resumed.
    Cut {
        times: usize,
    },
    /// The gateway is killed while the calls run, and started again on its store.
    GatewayKilled,
    /// The server is killed while the calls run, and started again. It has lost its sessions.
    ServerKilled,
    /// The server is killed and started again between two calls.
    ServerRestartedBefore,
    /// Between two calls all connections are cut, and the client is idle for this time.
    Pause(Duration),
    /// The gateway has no means for this yet.
    NotYet,
}

impl Scenario {
    const fn new(name: &'static str, fault: Fault, calls: Calls) -> Self {
        Self { name, fault, calls }
    }

    /// Returns the columns of the table.
    pub(super) fn columns(&self) -> Vec<String> {
        match self.calls {
            Calls::Each(calls) if calls.len() > 1 => {
                calls.iter().map(|(key, _)| format!("{}, {key}", self.name)).collect()
            }
            Calls::Each(_) | Calls::Parallel(_) => vec![self.name.to_owned()],
        }
    }

    /// Returns the key and the tool of each call.
    pub(super) fn keys(&self) -> Vec<(String, Tool)> {
        match self.calls {
            Calls::Each(calls) => calls.iter().map(|(key, tool)| ((*key).to_owned(), *tool)).collect(),
            Calls::Parallel(count) => (1..=count).map(|number| (format!("call-{number}"), HOLD)).collect(),
        }
    }

    pub(super) fn is_pause(&self) -> bool {
        matches!(self.fault, Fault::Pause(_))
    }

    pub(super) fn applies_to(&self, kind: Kind) -> bool {
        kind == Kind::Calls || matches!(self.name, "plain" | "server restarted")
    }
}

impl Fault {
    /// Returns true if the fault is between two calls.
    pub(super) fn is_between_calls(self) -> bool {
        matches!(self, Self::ServerRestartedBefore | Self::Pause(_))
    }
}
