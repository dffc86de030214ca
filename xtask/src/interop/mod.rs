//! `cargo xtask interop --clients`: clients built on other people's SDKs play a script against one of our servers, through a
//! proxy that cuts their connections. The other way round, with servers on those SDKs, it is [`servers`]; plain `cargo xtask
//! interop` is both.
//!
//! A client gets two URLs, that of the endpoint and that of [`control`], and prints a line of JSON per step.

mod client;
mod control;
mod cutter;
mod http;
mod journal;
mod program;
mod report;
mod scan;
mod scripts;
mod servers;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::prepare;
use client::{CLIENTS, Front};
use report::Report;

/// Where things are.
#[derive(Debug)]
struct Places {
    /// The sources of the clients, or of the servers.
    sources: PathBuf,
    /// Their dependencies, kept between runs.
    cache: PathBuf,
    /// What this run leaves behind: stores and logs.
    run: PathBuf,
    /// Compiled programs.
    programs: PathBuf,
}

impl Places {
    /// What an earlier run has left behind is gone then.
    fn new(root: &Path, sources: &str, cache: &str) -> Result<Self, Failure> {
        let target = crate::target()?;
        let cache = target.join(cache);
        let run = cache.join("run");
        if run.exists() {
            fs::remove_dir_all(&run)?;
        }
        fs::create_dir_all(&run)?;
        fs::create_dir_all(&cache)?;
        Ok(Self { sources: root.join(sources), cache, run, programs: target.join("debug") })
    }
}

/// Runs clients and servers, or those that are asked for.
pub(crate) fn command(root: &Path, arguments: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    match arguments {
        [] => {
            let clients = clients(root, &[], out);
            // Whatever came of the clients, what becomes of the servers is worth knowing; but a fault of ours ends it.
            if !matches!(clients, Ok(()) | Err(Failure::Reported)) {
                return clients;
            }
            servers::command(root, &[], out).and(clients)
        }
        ["--servers", rest @ ..] => servers::command(root, rest, out),
        ["--clients", rest @ ..] => clients(root, rest, out),
        rest => clients(root, rest, out),
    }
}

/// Runs the clients named, or all of them. With `--through-gateway`, the gateway stands before their servers.
fn clients(root: &Path, arguments: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    let (front, names) = match arguments {
        ["--through-gateway", names @ ..] => (Front::Gateway, names),
        names => (Front::None, names),
    };
    if let Some(unknown) = names.iter().find(|name| CLIENTS.iter().all(|client| client.name != **name)) {
        let known = CLIENTS.iter().map(|client| client.name).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no client `{unknown}`; there are {known}")));
    }
    let places = Places::new(root, "interop/clients", "interop")?;
    let chosen: Vec<_> =
        CLIENTS.iter().filter(|client| names.is_empty() || names.contains(&client.name)).collect();
    let mut servers: BTreeSet<_> = chosen.iter().map(|client| client.script.program).collect();
    servers.extend((front == Front::Gateway).then_some("steadfast"));
    let servers: Vec<&str> = servers.into_iter().collect();
    prepare::build(root, &servers, &places.run.join("build.log"), out)?;
    let mut report = Report::default();
    for client in chosen {
        match client.missing_tools() {
            Some(missing) => {
                writeln!(out, "{}: skipped, {missing}", client.name)?;
                report.skip(client, missing);
            }
            None => report.add(client, client.run(front, root, &places, out)?),
        }
    }
    report.print(out)
}
