//! `cargo xtask interop`: clients built on other people's SDKs play a script against one of our servers, through a proxy
//! that cuts their connections.
//!
//! A client gets two URLs, that of the endpoint and that of [`control`], and prints a line of JSON per step.

mod client;
mod control;
mod cutter;
mod http;
mod journal;
mod report;
mod scan;
mod scripts;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::prepare;
use client::CLIENTS;
use report::Report;

/// Where things are.
#[derive(Debug)]
struct Places {
    /// The clients' sources.
    sources: PathBuf,
    /// Their dependencies, kept between runs.
    cache: PathBuf,
    /// What this run leaves behind: stores and logs.
    run: PathBuf,
    /// Compiled programs.
    programs: PathBuf,
}

/// Runs the clients named, or all of them.
pub(crate) fn command(root: &Path, names: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(unknown) = names.iter().find(|name| CLIENTS.iter().all(|client| client.name != **name)) {
        let known = CLIENTS.iter().map(|client| client.name).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no client `{unknown}`; there are {known}")));
    }
    let target = crate::target()?;
    let places = Places {
        sources: root.join("interop/clients"),
        cache: target.join("interop"),
        run: target.join("interop/run"),
        programs: target.join("debug"),
    };
    if places.run.exists() {
        fs::remove_dir_all(&places.run)?;
    }
    fs::create_dir_all(&places.run)?;

    let chosen: Vec<_> =
        CLIENTS.iter().filter(|client| names.is_empty() || names.contains(&client.name)).collect();
    let servers: BTreeSet<_> = chosen.iter().map(|client| client.script.package).collect();
    for server in servers {
        prepare::build(root, server, &places.run.join("build.log"), out)?;
    }
    let mut report = Report::default();
    for client in chosen {
        match client.missing_tools() {
            Some(missing) => {
                writeln!(out, "{}: skipped, {missing}", client.name)?;
                report.skip(client, missing);
            }
            None => report.add(client, client.run(root, &places, out)?),
        }
    }
    report.print(out)
}
