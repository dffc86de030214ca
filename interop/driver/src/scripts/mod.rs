//! `cargo xtask interop --scripts`: clients on other SDKs run a script against one of our servers,
//! through a proxy that cuts their connections.
//!
//! A client gets two URLs, the one of the MCP endpoint and the one of the [`control`] endpoint, and
//! prints a line of JSON for each step.

mod catalogue;
mod control;
mod definitions;
mod report;
mod run;

use std::collections::BTreeSet;
use std::io::Write;

use crate::folders::{Checkout, Folders};
use catalogue::CLIENTS;
use report::Report;
use run::Route;
use steadfast_test_setup::{self as setup, Failure};

/// Runs the clients named, or all of them. With `--through-gateway` the gateway is between each
/// client and its server.
pub(crate) fn command(checkout: &Checkout, arguments: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    let (route, names) = match arguments {
        ["--through-gateway", names @ ..] => (Route::ThroughGateway, names),
        names => (Route::Direct, names),
    };
    if let Some(unknown) = names.iter().find(|name| CLIENTS.iter().all(|client| client.name != **name)) {
        let known = CLIENTS.iter().map(|client| client.name).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no client `{unknown}`; there are {known}")));
    }
    let folders = Folders::new(checkout, "interop/clients", "interop")?;
    let chosen: Vec<_> =
        CLIENTS.iter().filter(|client| names.is_empty() || names.contains(&client.name)).collect();
    let mut servers: BTreeSet<_> = chosen.iter().map(|client| client.script.program).collect();
    servers.extend((route == Route::ThroughGateway).then_some("steadfast"));
    let servers: Vec<&str> = servers.into_iter().collect();
    setup::build(&checkout.root, &servers, &folders.run.join("build.log"), out)?;
    let mut report = Report::default();
    for client in chosen {
        match client.program.missing_tools() {
            Some(missing) => {
                writeln!(out, "{}: skipped, {missing}", client.name)?;
                report.skip(client, missing);
            }
            None => report.add(client, run::run(client, route, checkout, &folders, out)?),
        }
    }
    report.print(out)
}
