//! `cargo xtask bench`: builds and runs a benchmark. Each compares steadfast with other programs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use steadfast_test_setup::{self as setup, Failure, execute};

/// The limit for compiling the peer that is a Rust program.
const INSTALL_LIMIT: Duration = Duration::from_secs(3600);

/// The benchmarks and what each compares. To add one, add it to `steadfast-bench` and a row here.
const BENCHES: &[(&str, &str)] = &[
    (
        "library",
        "requests per second on memory, on SQLite and without sessions, against rmcp's own HTTP service",
    ),
    ("gateway", "requests per second and latency in front of a fast server, against nginx and other proxies"),
    (
        "mechanisms",
        "our client transport and worker threads, against hyper's client and one ordinary runtime",
    ),
    ("nodes", "cost of gateways that share a database, against one gateway with sessions in memory"),
    ("streams", "memory of an attached idle stream in front of a server, sockets included"),
    (
        "server-requests",
        "server requests per second of one session, 1,000 of them at once, against rmcp's own HTTP service",
    ),
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

/// Builds the benchmarks and runs one. It prints a table and then a line of JSON.
pub(crate) fn run(root: &Path, name: &str, args: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    if !BENCHES.iter().any(|(known, _)| *known == name) {
        let names = BENCHES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no benchmark `{name}`; there are {names}")));
    }
    out.flush()?;
    let mut build = Command::new("cargo");
    setup::clear_package_variables(&mut build);
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

/// Installs the other proxies that the gateway is compared with into the build folder.
fn peers(root: &Path, folder: &Path, out: &mut dyn Write) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(folder)?;
    let log = folder.join("prepare.log");
    for name in ["mcp-proxy", "fastmcp"] {
        setup::python(&root.join("bench/peers").join(name), &folder.join(name), &log, out)?;
    }
    if !folder.join("bin/mcp-proxy").is_file() {
        let mut install = Command::new("cargo");
        install.args(["install", "mcp-proxy", "--version", "0.6.0", "--locked", "--root"]).arg(folder);
        setup::run("building mcp-proxy 0.6.0", &mut install, &log, INSTALL_LIMIT, out)?;
    }
    Ok(folder.to_path_buf())
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
