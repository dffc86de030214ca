//! The benchmarks: each compares steadfast with something else, both measured in the same run.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::prepare;

/// For the one peer that has to be compiled.
const INSTALL_LIMIT: Duration = Duration::from_secs(3600);

/// Every benchmark there is, with what it compares. To add one, add it to `steadfast-bench` and a row here.
const BENCHES: &[(&str, &str)] = &[
    (
        "library",
        "requests per second on memory, on SQLite and without sessions, against rmcp's own HTTP service",
    ),
    (
        "gateway",
        "requests per second and latency in front of a fast server, against nginx and the proxies of others",
    ),
    ("nodes", "what gateways that share a database cost, against one that keeps its sessions in memory"),
    ("streams", "memory of an attached idle stream in front of a server, sockets included"),
    ("asks", "asks per second of one session, 1,000 of them at once, against rmcp's own HTTP service"),
    ("idle", "resident memory of an idle session on memory and SQLite, against rmcp's own"),
    ("replay", "speed of replaying a long stream, and the cost of attaching at its end"),
];

pub(crate) fn list(out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "cargo xtask bench NAME [ARGS...]\n")?;
    let width = BENCHES.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, what) in BENCHES {
        writeln!(out, "  {name:width$}  {what}")?;
    }
    Ok(())
}

/// Builds the benchmarks and runs one of them; it prints a table for people and, last, a line of JSON.
pub(crate) fn run(root: &Path, name: &str, args: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    if !BENCHES.iter().any(|(known, _)| *known == name) {
        let names = BENCHES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no benchmark `{name}`; there are {names}")));
    }
    out.flush()?;
    let mut build = Command::new("cargo");
    prepare::as_from_a_shell(&mut build);
    build.args(["build", "--release", "--locked", "--package", "steadfast-bench"]).current_dir(root);
    let target = crate::target()?;
    let mut bench = Command::new(target.join("release").join("steadfast-bench"));
    if matches!(name, "gateway" | "nodes" | "streams") {
        build.args(["--package", "steadfast-gateway"]);
    }
    if name == "gateway" {
        bench.env("STEADFAST_BENCH_PEERS", peers(root, &target.join("bench-peers"), out)?);
    }
    out.flush()?;
    execute(&mut build)?;
    execute(bench.args(["compare", name]).args(args).current_dir(root))
}

/// Gets the programs of others that a gateway is compared with. They are kept in the build folder.
fn peers(root: &Path, folder: &Path, out: &mut dyn Write) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(folder)?;
    let log = folder.join("prepare.log");
    for name in ["mcp-proxy", "fastmcp"] {
        prepare::python(&root.join("bench/peers").join(name), &folder.join(name), &log, out)?;
    }
    if !folder.join("bin/mcp-proxy").is_file() {
        let mut install = Command::new("cargo");
        install.args(["install", "mcp-proxy", "--version", "0.6.0", "--locked", "--root"]).arg(folder);
        prepare::run("building mcp-proxy 0.6.0", &mut install, &log, INSTALL_LIMIT, out)?;
    }
    Ok(folder.to_path_buf())
}

/// Runs a command that speaks for itself.
fn execute(command: &mut Command) -> Result<(), Failure> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::Reported),
        Err(error) => {
            let program = command.get_program().to_string_lossy().into_owned();
            Err(Failure::Broken(format!("cannot start `{program}`: {error}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_before_anything_is_built() {
        let result = run(Path::new("."), "nonesuch", &[], &mut Vec::new());
        let message = "no benchmark `nonesuch`; there are library, ";
        assert!(matches!(&result, Err(Failure::Usage(text)) if text.starts_with(message)), "{result:?}");
    }

    #[test]
    fn the_list_has_a_line_for_each() {
        let mut out = Vec::new();
        list(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for (name, what) in BENCHES {
            assert!(text.lines().any(|line| line.contains(name) && line.ends_with(what)), "{text}");
        }
    }
}
