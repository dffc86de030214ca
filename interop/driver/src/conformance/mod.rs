//! `cargo xtask conformance`: the official MCP conformance suite against the fixture server, the
//! gateway and our client.

pub(crate) mod node;
mod report;
mod results;
mod runs;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::child_server::ChildServer;
use crate::folders::Checkout;
use report::{Report, Row};
use results::Results;
use runs::{RUNS, Run, Subject};
use steadfast_test_setup::{self as setup, Ended, Failure, now, seconds};

/// The limit for one run. The longest takes less than a minute.
const RUN_LIMIT: Duration = Duration::from_secs(300);
const FIXTURE: &str = "steadfast-fixture";
const GATEWAY: &str = "steadfast";
const CLIENT: &str = "steadfast-conformance-client";

/// Runs the runs named, or all of them.
pub(crate) fn command(checkout: &Checkout, names: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(unknown) = names.iter().find(|name| RUNS.iter().all(|run| run.name != **name)) {
        let known = RUNS.iter().map(|run| run.name).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no run `{unknown}`; there are {known}")));
    }
    if let Some(tool) = setup::missing(&["node", "npm"]).first() {
        return Err(Failure::Broken(format!("{} is missing; get it: {}", tool.name, tool.get)));
    }
    let chosen: Vec<&Run> = RUNS.iter().filter(|run| names.is_empty() || names.contains(&run.name)).collect();
    let environment = Environment::prepare(checkout, out)?;
    let mut report = Report::default();
    for run in chosen {
        match run.subject {
            Subject::Server => environment.run_server(run, out, &mut report)?,
            Subject::Gateway => environment.run_gateway(run, out, &mut report)?,
            Subject::Client => environment.run_client(&[], run, out, &mut report)?,
            Subject::ClientThroughGateway => {
                let variables = [("STEADFAST_GATEWAY", checkout.program(GATEWAY))];
                environment.run_client(&variables, run, out, &mut report)?;
            }
        }
    }
    report.compare_with_and_without(runs::GATEWAY_PREFIX, "server-");
    report.print(out)
}

/// The prepared programs and folders.
#[derive(Debug)]
struct Environment<'a> {
    checkout: &'a Checkout,
    node: PathBuf,
    /// All versions of the suite.
    suites: PathBuf,
    /// The stores, logs and results of this command.
    folder: PathBuf,
}

impl<'a> Environment<'a> {
    fn prepare(checkout: &'a Checkout, out: &mut dyn Write) -> Result<Self, Failure> {
        let folder = checkout.empty_folder("conformance/run")?;
        let suites = checkout.target.join("conformance/suites");
        setup::node(&checkout.root.join("interop/conformance"), &suites, &folder.join("npm.log"), out)?;
        setup::build(&checkout.root, &[FIXTURE, GATEWAY, CLIENT], &folder.join("build.log"), out)?;
        let node = node::find(&suites)?;
        Ok(Self { checkout, node, suites, folder })
    }

    /// Each run has its own server, so that no run can influence another.
    fn run_server(&self, run: &'static Run, out: &mut dyn Write, report: &mut Report) -> Result<(), Failure> {
        let folder = self.folder_of(run)?;
        let mut server = ChildServer::new(self.checkout.program(FIXTURE), &[], folder.clone());
        let url = format!("http://{}/mcp", server.start()?);
        self.run(run, &["server", "--url", &url], &[], &folder, out, report)
    }

    /// The fixture server behind a gateway with an SQLite store.
    fn run_gateway(
        &self,
        run: &'static Run,
        out: &mut dyn Write,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let (folder, behind) = (self.folder_of(run)?, self.folder_of(run)?.join("server"));
        fs::create_dir_all(&behind)?;
        let mut server = ChildServer::new(self.checkout.program(FIXTURE), &[], behind);
        let upstream = format!("http://{}/mcp", server.start()?);
        let arguments = ["serve", "--upstream", &upstream];
        let mut gateway = ChildServer::new(self.checkout.program(GATEWAY), &arguments, folder.clone());
        let url = format!("http://{}/mcp", gateway.start()?);
        self.run(run, &["server", "--url", &url], &[], &folder, out, report)
    }

    fn run_client(
        &self,
        variables: &[(&str, PathBuf)],
        run: &'static Run,
        out: &mut dyn Write,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let folder = self.folder_of(run)?;
        let program = self.checkout.program(CLIENT).display().to_string();
        self.run(run, &["client", "--command", &program], variables, &folder, out, report)
    }

    fn run(
        &self,
        run: &'static Run,
        subject: &[&str],
        variables: &[(&str, PathBuf)],
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
            suite.envs(variables.iter().map(|(name, value)| (name, value)));
            ends.push(setup::wait(&mut suite, &log, RUN_LIMIT, || Ok(()))?);
        }
        writeln!(out, "{}", seconds(started.elapsed()))?;
        let mut row = Row::new(run, Results::read(&results)?, started.elapsed());
        if ends.contains(&Ended::TimedOut) {
            row.add_fault(format!("the suite timed out; see {}", log.display()));
        }
        // Each failed check is reported, scored by the suite or not. A suite that crashed reports
        // none.
        if ends.contains(&Ended::Failed) && row.results.findings.is_empty() {
            row.add_fault(format!("the suite failed without a failed check; see {}", log.display()));
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
