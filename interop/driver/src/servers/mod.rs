//! `cargo xtask interop --servers`: servers on other SDKs, directly and behind our gateway.
//!
//! The [`steps`] speak HTTP and JSON-RPC themselves, because no SDK lets its user choose ids or cut
//! connections. Each step runs once directly and once through the gateway, and the report shows
//! both results side by side.

pub(crate) mod catalogue;
mod client;
pub(crate) mod outcome;
pub(crate) mod process;
mod report;
mod steps;
pub(crate) mod target;

use std::fs;
use std::io::Write;
use std::process::Command;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::folders::{Checkout, Folders};
use catalogue::{SERVERS, Server, Transport};
use report::{Report, Row, StepResult};
use steadfast_test_setup::{self as setup, Failure, seconds};
use steps::STEPS;
use target::Target;

/// How the steps reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Direct,
    ThroughGateway,
}

/// Runs the steps with the servers named, or with all of them. With `--direct` only without
/// gateway.
pub(crate) fn command(checkout: &Checkout, arguments: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    let (options, names): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|word| word.starts_with("--"));
    if let Some(unknown) = options.iter().find(|option| **option != "--direct") {
        return Err(Failure::Usage(format!("`interop --servers` takes no `{unknown}`")));
    }
    if let Some(unknown) = names.iter().find(|name| SERVERS.iter().all(|server| server.name != **name)) {
        let known = SERVERS.iter().map(|server| server.name).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no server `{unknown}`; there are {known}")));
    }
    let with_gateway = options.is_empty();
    let folders = Folders::new(checkout, "interop/servers", "interop/servers")?;
    if with_gateway {
        setup::build(&checkout.root, &["steadfast"], &folders.run.join("build.log"), out)?;
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut report = Report::default();
    let is_chosen = |server: &&Server| {
        (names.is_empty() || names.contains(&server.name))
            && (server.transport == Transport::Http || with_gateway)
    };
    for server in SERVERS.iter().filter(is_chosen) {
        if let Some(missing) = server.program.missing_tools() {
            writeln!(out, "{}: skipped, {missing}", server.name)?;
            report.skip(server.name, missing);
            continue;
        }
        let folder = folders.run.join(server.name);
        fs::create_dir_all(&folder)?;
        let start = server.program.prepare(checkout, &folders, &folder.join("prepare.log"), out)?;
        let mut row = Row::new(server.name, server.sdk(&checkout.root)?);
        let direct = (server.transport == Transport::Http).then_some(Route::Direct);
        for route in direct.into_iter().chain(with_gateway.then_some(Route::ThroughGateway)) {
            let mut target = target(server, route, &start, checkout, &folders)?;
            run_steps(&runtime, &mut target, route, &mut row, out)?;
        }
        report.add(row);
    }
    report.write(&folders.cache.join("results.json"), out)?;
    report.print(out)
}

fn target(
    server: &Server,
    route: Route,
    start: &Command,
    checkout: &Checkout,
    folders: &Folders,
) -> Result<Target, Failure> {
    let folder = folders.run.join(server.name).join(route.name());
    fs::create_dir_all(&folder)?;
    let command = [start.get_program()].into_iter().chain(start.get_args());
    let command: Vec<String> = command.map(|word| word.to_string_lossy().into_owned()).collect();
    let gateway = checkout.program("steadfast");
    let target = match (route, server.transport) {
        (Route::Direct, _) => Target::direct(&command, &folder),
        (Route::ThroughGateway, Transport::Http) => Target::behind_gateway(&command, &gateway, &folder),
        (Route::ThroughGateway, Transport::Stdio) => Target::child_of_gateway(&command, &gateway, &folder),
    };
    target.map_err(Failure::Broken)
}

fn run_steps(
    runtime: &Runtime,
    target: &mut Target,
    route: Route,
    row: &mut Row,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    for (number, step) in STEPS.iter().enumerate() {
        let started = Instant::now();
        let result = StepResult::of(runtime.block_on(steps::run(step, target)));
        let took = seconds(started.elapsed());
        let (server, name, word, detail) = (row.name, step.name, &result.word, &result.detail);
        writeln!(out, "{server:16} {:8} {name:15} {word:10} {took:>6}  {detail}", route.name())?;
        out.flush()?;
        row.set(number, route, result);
    }
    Ok(())
}

impl Route {
    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::ThroughGateway => "gateway",
        }
    }
}
