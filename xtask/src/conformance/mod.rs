//! `cargo xtask conformance`: the official MCP conformance suite against the fixture server and our client.

mod node;
mod report;
mod results;
mod runs;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::prepare::{self, Ended};
use crate::runner::{now, seconds};
use crate::served::Served;
use crate::suites::TOOLS;
use report::{Report, Row};
use results::Results;
use runs::{RUNS, Run, Subject};

/// For one run; the longest takes less than a minute.
const RUN_LIMIT: Duration = Duration::from_secs(300);
const FIXTURE: &str = "steadfast-fixture";
const GATEWAY: &str = "steadfast";
const CLIENT: &str = "steadfast-conformance-client";

/// Runs those named, or all of them.
pub(crate) fn command(root: &Path, names: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(unknown) = names.iter().find(|name| RUNS.iter().all(|run| run.name != **name)) {
        let known = RUNS.iter().map(|run| run.name).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no run `{unknown}`; there are {known}")));
    }
    for tool in TOOLS.iter().filter(|tool| tool.name == "node" || tool.name == "npm") {
        if !tool.is_usable() {
            return Err(Failure::Broken(format!("{} is missing; get it: {}", tool.name, tool.get)));
        }
    }
    let chosen: Vec<&Run> = RUNS.iter().filter(|run| names.is_empty() || names.contains(&run.name)).collect();
    let bench = Bench::prepare(root, out)?;
    let mut report = Report::default();
    for run in chosen {
        match run.subject {
            Subject::Server => bench.try_server(run, out, &mut report)?,
            Subject::Gateway => bench.try_gateway(run, out, &mut report)?,
            Subject::Client => bench.try_client(&[], run, out, &mut report)?,
            Subject::ClientThroughGateway => {
                let gateway = [("STEADFAST_GATEWAY", bench.programs.join(GATEWAY))];
                bench.try_client(&gateway, run, out, &mut report)?;
            }
        }
    }
    report.compare_with_and_without(runs::THROUGH, "server-");
    report.print(out)
}

/// Where things are.
#[derive(Debug)]
struct Bench {
    node: PathBuf,
    /// The suite in its versions.
    suites: PathBuf,
    /// What this command leaves behind: stores, logs and results.
    folder: PathBuf,
    /// Compiled programs.
    programs: PathBuf,
}

impl Bench {
    fn prepare(root: &Path, out: &mut dyn Write) -> Result<Self, Failure> {
        let target = crate::target()?;
        let folder = target.join("conformance/run");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let suites = target.join("conformance/suites");
        prepare::node(&root.join("interop/conformance"), &suites, &folder.join("npm.log"), out)?;
        prepare::build(root, &[FIXTURE, GATEWAY, CLIENT], &folder.join("build.log"), out)?;
        let node = node::find(&suites)?;
        Ok(Self { node, suites, folder, programs: target.join("debug") })
    }

    /// Each run has a server of its own, so that none can spoil another.
    fn try_server(&self, run: &'static Run, out: &mut dyn Write, report: &mut Report) -> Result<(), Failure> {
        let folder = self.folder_of(run)?;
        let mut server = Served::new(self.programs.join(FIXTURE), &[], folder.clone());
        let url = format!("http://{}/mcp", server.start()?);
        self.run(run, &["server", "--url", &url], &[], &folder, out, report)
    }

    /// The same server, behind a gateway that keeps its sessions in a file.
    fn try_gateway(
        &self,
        run: &'static Run,
        out: &mut dyn Write,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let (folder, behind) = (self.folder_of(run)?, self.folder_of(run)?.join("server"));
        fs::create_dir_all(&behind)?;
        let mut server = Served::new(self.programs.join(FIXTURE), &[], behind);
        let upstream = format!("http://{}/mcp", server.start()?);
        let arguments = ["serve", "--upstream", &upstream];
        let mut gateway = Served::new(self.programs.join(GATEWAY), &arguments, folder.clone());
        let url = format!("http://{}/mcp", gateway.start()?);
        self.run(run, &["server", "--url", &url], &[], &folder, out, report)
    }

    fn try_client(
        &self,
        environment: &[(&str, PathBuf)],
        run: &'static Run,
        out: &mut dyn Write,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let folder = self.folder_of(run)?;
        let program = self.programs.join(CLIENT).display().to_string();
        self.run(run, &["client", "--command", &program], environment, &folder, out, report)
    }

    fn run(
        &self,
        run: &'static Run,
        subject: &[&str],
        environment: &[(&str, PathBuf)],
        folder: &Path,
        out: &mut dyn Write,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let (log, results) = (folder.join("suite.log"), folder.join("results"));
        let started = now();
        write!(out, "{} ", run.name)?;
        out.flush()?;
        let mut ends = Vec::new();
        for arguments in run.arguments {
            let mut suite = Command::new(&self.node);
            suite.arg(self.suites.join("node_modules").join(run.version).join("dist/index.js"));
            suite.args(subject).args(*arguments).arg("-o").arg(&results).current_dir(folder);
            suite.envs(environment.iter().map(|(name, value)| (name, value)));
            ends.push(prepare::watch(&mut suite, &log, RUN_LIMIT, || Ok(()))?);
        }
        writeln!(out, "{}", seconds(started.elapsed()))?;
        let mut row = Row::new(run, Results::read(&results)?, started.elapsed());
        if ends.contains(&Ended::Never) {
            row.note(format!("the suite did not end; see {}", log.display()));
        }
        // It is the checks that count, scored or not; a suite that fell over has none to show.
        if ends.contains(&Ended::Badly) && row.results.troubles.is_empty() {
            row.note(format!("the suite failed and no check did; see {}", log.display()));
        }
        report.add(row);
        Ok(())
    }

    fn folder_of(&self, run: &Run) -> Result<PathBuf, Failure> {
        let folder = self.folder.join(run.name);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}
