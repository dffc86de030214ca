//! The project's chores as code. `cargo xtask` shows what there is.

#![forbid(unsafe_code)]

use std::env;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod apt;
mod bench;
mod chaos;
mod conformance;
mod counts;
mod failure;
mod interop;
mod prepare;
mod runner;
mod served;
mod suites;
mod tidy;

use failure::Failure;

const HELP: &str = "\
cargo xtask COMMAND

  test [--only SUITE]... [--list]   run every suite that CI runs, or only those named
  tidy                              check the rules of this repository that no other tool checks
  bench [NAME [ARGS...]]            list the benchmarks, or build and run one
  counts [--strict | --accept]      count instructions and compare with bench/counts.json: fails at 25 % more, or with
                                    --strict, for counts of this machine, at 3 %; or writes that file
  interop                           both of these
  interop --clients [--through-gateway] [CLIENT]...
                                    run clients of other SDKs against our servers, cutting connections
  interop --servers [--direct] [SERVER]...
                                    run servers of other SDKs directly and behind our gateway, and compare
  chaos [--store redis|redis-cluster|postgres] [--seed N] [--calls N] [--seconds N] [--clients N]
        [--concurrency N] [--short] [--json] [--keep]
                                    kill, freeze and cut off gateways, their store and servers; check every promise
  chaos --sdk [--store STORE] [--seed N] [--seconds N]
                                    kill and restart gateways while clients of other SDKs work
  chaos --planted                   do it with bugs that were planted, and see each of them caught
  conformance [RUN]...              run the official MCP conformance suite against our server and client
  help                              show this text

Exit code: 0 all is well, 1 something failed, 2 the command line was wrong.
";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match dispatch(&args, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                // A message that cannot be written has no other place to go.
                let _ = writeln!(io::stderr(), "xtask: {message}");
            }
            failure.exit_code()
        }
    }
}

fn dispatch(args: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    match args {
        [] | ["help" | "--help" | "-h", ..] => Ok(out.write_all(HELP.as_bytes())?),
        // A benchmark has more to say of itself.
        [name, "--help" | "-h"] if *name != "bench" => dispatch(&[], out),
        ["test", options @ ..] => test(options, out),
        ["tidy"] => tidy::command(&root(), out),
        ["tidy", extra, ..] => Err(Failure::Usage(format!("`tidy` takes no `{extra}`"))),
        ["bench"] => bench::list(out),
        ["bench", name, rest @ ..] => bench::run(&root(), name, rest, out),
        ["counts", options @ ..] => counts::command(&root(), options, out),
        ["interop", arguments @ ..] => interop::command(&root(), arguments, out),
        ["chaos", options @ ..] => chaos::command(&root(), options, out),
        ["conformance", runs @ ..] => conformance::command(&root(), runs, out),
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
                tools: suites::TOOLS,
                apt: apt::Apt::of_this_machine(ci),
                logs: target()?.join("xtask"),
                ci,
                live: io::stdout().is_terminal(),
            }
            .run(&chosen, out)
        }
    }
}

/// The root of the repository. Cargo says where this package is when it runs it, so a build folder that several
/// clones share never leads to the wrong one.
fn root() -> PathBuf {
    let package = env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    Path::new(&package).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The build folder, wherever it was configured to be: this program lies in `TARGET/PROFILE/`.
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
    fn every_command_explains_itself() {
        for asked in [&[][..], &["help"], &["chaos", "--help"], &["test", "-h"], &["tidy", "--help"]] {
            let mut told = Vec::new();
            assert!(dispatch(asked, &mut told).is_ok(), "{asked:?}");
            assert_eq!(told, HELP.as_bytes(), "{asked:?}");
        }
    }
}
