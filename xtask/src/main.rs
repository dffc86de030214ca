//! The commands of this repository. `cargo xtask` lists them.

#![forbid(unsafe_code)]

use std::env;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod apt;
mod bench;
mod chaos;
mod counts;
mod driver;
mod runner;
mod suites;
mod tidy;

use steadfast_test_setup::{Failure, TOOLS};

const HELP: &str = "\
cargo xtask COMMAND

  test [--only SUITE]... [--list]   run every suite that CI runs, or only those named
  tidy                              check the rules of this repository that no other tool checks
  bench [NAME [ARGS...]]            list the benchmarks, or build and run one
  counts [--strict | --accept]      count instructions and compare with bench/counts.json: fails at 25 % more, or with
                                    --strict, for counts of this machine, at 3 %; --accept writes that file
  interop                           run all of the following
  interop --scripts [--through-gateway] [CLIENT]...
                                    run scripts of other SDKs against our servers, cutting connections
  interop --clients [--ci] [--pause] [--write] [CLIENT]...
                                    run real clients through the gateway, cutting connections and killing processes;
                                    --ci only those of CI, --pause with a pause of minutes, --write all and docs/clients.md
  interop --servers [--direct] [SERVER]...
                                    run servers of other SDKs directly and behind our gateway, and compare
  chaos [--store redis|redis-cluster|postgres] [--seed N] [--calls N] [--seconds N] [--clients N]
        [--concurrency N] [--short] [--json] [--keep]
                                    kill, freeze and cut off gateways, their store and servers; check every promise
  chaos --sdk [--store STORE] [--seed N] [--seconds N]
                                    kill and restart gateways while clients of other SDKs work
  chaos --bugs [--check | --build [BUG]... | --edit BUG | --save BUG | [BUG]...]
                                    test the checkers: inject bugs into the gateway and expect that chaos detects each;
                                    or only check that the patches in chaos/bugs apply, or build, or edit one of them
  conformance [RUN]...              run the official MCP conformance suite against our server and client
  help                              show this text

Exit code: 0 success, 1 failure, 2 wrong command line.
";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match dispatch(&args, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                // If the standard error is closed, no other place is left for the message.
                let _ = writeln!(io::stderr(), "xtask: {message}");
            }
            failure.exit_code()
        }
    }
}

fn dispatch(args: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    match args {
        [] | ["help" | "--help" | "-h", ..] => Ok(out.write_all(HELP.as_bytes())?),
        // A benchmark prints its own help.
        [name, "--help" | "-h"] if *name != "bench" => dispatch(&[], out),
        ["test", options @ ..] => test(options, out),
        ["tidy"] => tidy::command(&root(), out),
        ["tidy", extra, ..] => Err(Failure::Usage(format!("`tidy` takes no `{extra}`"))),
        ["bench"] => bench::list(out),
        ["bench", name, rest @ ..] => bench::run(&root(), name, rest, out),
        ["counts", options @ ..] => counts::command(&root(), options, out),
        ["interop", arguments @ ..] => driver::run(&root(), "interop", arguments, out),
        ["chaos", options @ ..] => chaos::command(&root(), options, out),
        ["conformance", runs @ ..] => driver::run(&root(), "conformance", runs, out),
        [unknown, ..] => {
            Err(Failure::Usage(format!("no command `{unknown}`; `cargo xtask help` lists them")))
        }
    }
}

fn test(options: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    match suites::select(options)? {
        suites::Selection::List => suites::list(out),
        suites::Selection::Run(chosen) => {
            let ci = env::var("CI").is_ok_and(|value| value == "true");
            runner::Runner {
                root: root(),
                tools: TOOLS,
                apt: apt::Apt::of_this_machine(ci),
                logs: target()?.join("xtask"),
                ci,
                live: io::stdout().is_terminal(),
            }
            .run(&chosen, out)
        }
    }
}

/// Returns the root of the repository. Cargo passes the folder of this package when it runs it, so
/// this is right also if several clones share a build folder.
fn root() -> PathBuf {
    let package = env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    Path::new(&package).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Returns the build folder, also if it is configured: this program is in `TARGET/PROFILE/`.
fn target() -> Result<PathBuf, Failure> {
    let program = env::current_exe()?;
    program
        .ancestors()
        .nth(2)
        .map(Path::to_path_buf)
        .ok_or_else(|| Failure::Broken(format!("{} is not inside a build folder", program.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_prints_the_help() {
        for arguments in [&[][..], &["help"], &["chaos", "--help"], &["test", "-h"], &["tidy", "--help"]] {
            let mut printed = Vec::new();
            assert!(dispatch(arguments, &mut printed).is_ok(), "{arguments:?}");
            assert_eq!(printed, HELP.as_bytes(), "{arguments:?}");
        }
    }
}
