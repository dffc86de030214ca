//! The steps, in the order in which they are played. Each opens sessions of its own.

mod asks;
mod calls;
mod deaths;
mod ears;
mod streams;

use std::pin::Pin;

use crate::outcome::Fault;
use crate::target::Target;

/// Gives a line of evidence.
type Played<'a> = Pin<Box<dyn Future<Output = Result<String, Fault>> + 'a>>;

pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) play: for<'a> fn(&'a mut Target) -> Played<'a>,
}

pub(crate) const STEPS: &[Step] = &[
    Step { name: "parallel", play: |target| Box::pin(calls::parallel(target)) },
    Step { name: "duplicates", play: |target| Box::pin(calls::duplicates(target)) },
    Step { name: "cut", play: |target| Box::pin(streams::cut(target)) },
    Step { name: "asks", play: |target| Box::pin(asks::asks(target)) },
    Step { name: "progress_logs", play: |target| Box::pin(streams::progress_logs(target)) },
    Step { name: "cancel", play: |target| Box::pin(calls::cancel(target)) },
    Step { name: "gateway_killed", play: |target| Box::pin(deaths::gateway_killed(target)) },
    Step { name: "server_killed", play: |target| Box::pin(deaths::server_killed(target)) },
    Step { name: "crash", play: |target| Box::pin(deaths::crash(target)) },
    Step { name: "big", play: |target| Box::pin(calls::big(target)) },
];
