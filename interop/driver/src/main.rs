//! Runs clients and servers of other SDKs and the official conformance suite against steadfast.
//!
//! `cargo xtask interop` and `cargo xtask conformance` start this program. It fetches and builds
//! what the chosen runs need, runs them, prints a line for each step and then the tables.
#![forbid(unsafe_code)]

mod child_server;
mod clients;
mod conformance;
mod folders;
mod pin;
mod program;
mod proxy;
mod scripts;
mod servers;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use folders::Checkout;
use steadfast_test_setup::Failure;

const USAGE: &str = "usage: steadfast-interop-driver ROOT TARGET (interop | conformance) [ARGUMENT]...";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&arguments, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                // If the standard error is closed, no other place is left for the message.
                let _ = writeln!(io::stderr(), "interop: {message}");
            }
            failure.exit_code()
        }
    }
}

fn dispatch(arguments: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    let [root, target, command, arguments @ ..] = arguments else {
        return Err(Failure::Usage(USAGE.to_owned()));
    };
    let checkout = Checkout::new(Path::new(root), Path::new(target));
    match (*command, arguments) {
        ("interop", []) => all(&checkout, out),
        ("interop", ["--scripts", rest @ ..]) => scripts::command(&checkout, rest, out),
        ("interop", ["--clients", rest @ ..]) => clients::command(&checkout, rest, out),
        ("interop", ["--servers", rest @ ..]) => servers::command(&checkout, rest, out),
        ("conformance", names) => conformance::command(&checkout, names, out),
        _ => Err(Failure::Usage(USAGE.to_owned())),
    }
}

fn all(checkout: &Checkout, out: &mut dyn Write) -> Result<(), Failure> {
    let mut result = Ok(());
    for command in [scripts::command, clients::command, servers::command] {
        match command(checkout, &[], out) {
            Ok(()) => {}
            // A client that fails does not prevent the next run. A broken machine does.
            Err(Failure::Reported) => result = Err(Failure::Reported),
            broken => return broken,
        }
    }
    result
}
