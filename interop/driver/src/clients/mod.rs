//! `cargo xtask interop --clients`: real clients make calls through the gateway while connections
//! are cut and processes are killed. The server counts the executions of each call.

mod catalogue;
mod outcome;
mod process;
mod report;
mod rig;
mod run;
mod scenarios;

use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::conformance::node;
use crate::folders::{Checkout, Folders};
use crate::program::Program;
use catalogue::{CLIENTS, Client};
use report::{Report, Row};
use run::{ScenarioResult, Start};
use scenarios::{SCENARIOS, Scenario};
use steadfast_test_setup::{self as setup, Failure, now, seconds};

/// How many scenarios run at the same time. They mostly wait.
const JOBS: usize = 4;
/// The folder with the programs that are copied beside the SDK of each client.
const SHARED_SOURCES: &str = "interop/clients/calls";

/// A client that is ready to run.
struct Prepared {
    client: &'static Client,
    start: Start,
    row: Mutex<Row>,
}

/// Runs the clients named, those of CI (`--ci`), or all of them. With `--write` also the pause,
/// which takes minutes, and writes `docs/clients.md`.
pub(crate) fn command(checkout: &Checkout, arguments: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    let (options, names): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|word| word.starts_with("--"));
    if let Some(unknown) = options.iter().find(|option| !["--ci", "--write", "--pause"].contains(option)) {
        return Err(Failure::Usage(format!("`interop --clients` takes no `{unknown}`")));
    }
    if let Some(unknown) = names.iter().find(|name| CLIENTS.iter().all(|client| client.name != **name)) {
        let known = CLIENTS.iter().map(|client| client.name).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no client `{unknown}`; there are {known}")));
    }
    let (in_ci, write) = (options.contains(&"--ci"), options.contains(&"--write"));
    if write && (in_ci || !names.is_empty()) {
        return Err(Failure::Usage("`--write` measures all clients".to_owned()));
    }
    let is_chosen =
        |client: &&Client| (names.is_empty() || names.contains(&client.name)) && (!in_ci || client.is_in_ci);
    let folders = Folders::new(checkout, "interop/clients", "interop")?;
    setup::build(&checkout.root, &[rig::GATEWAY, rig::SERVER], &folders.run.join("build.log"), out)?;
    let mut report = Report::default();
    let mut prepared = Vec::new();
    for client in CLIENTS.iter().filter(is_chosen) {
        let programs = [Some(&client.program), client.adapter.as_ref()];
        match programs.iter().flatten().find_map(|program| program.missing_tools()) {
            Some(missing) => {
                writeln!(out, "{}: skipped, {missing}", client.name)?;
                report.skip(client, missing);
            }
            None => prepared.push(prepare(client, checkout, &folders, out)?),
        }
    }
    let jobs = |pause: bool| -> VecDeque<_> {
        let scenarios = SCENARIOS.iter().filter(|scenario| scenario.is_pause() == pause);
        scenarios.flat_map(|scenario| prepared.iter().map(move |client| (client, scenario))).collect()
    };
    run_all(jobs(false), JOBS, checkout, &folders, out)?;
    if write || options.contains(&"--pause") {
        // All clients pause at the same time.
        run_all(jobs(true), prepared.len(), checkout, &folders, out)?;
    }
    for client in prepared {
        report.add(client.row.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    if write {
        report.write(&checkout.root)?;
    }
    report.print(out)
}

/// Fetches and builds a client.
fn prepare(
    client: &'static Client,
    checkout: &Checkout,
    folders: &Folders,
    out: &mut dyn Write,
) -> Result<Prepared, Failure> {
    let folder = folders.run.join(client.name);
    fs::create_dir_all(&folder)?;
    let log = &folder.join("prepare.log");
    let command = client.program.prepare(checkout, folders, log, out)?;
    if let Some(adapter) = &client.adapter {
        adapter.prepare(checkout, folders, log, out)?;
    }
    if let Program::Node { folder, .. } | Program::Python { folder, .. } = client.program {
        for source in fs::read_dir(checkout.root.join(SHARED_SOURCES))? {
            let source = source?;
            fs::copy(source.path(), folders.cache.join(folder).join(source.file_name()))?;
        }
    }
    let text = |word: &std::ffi::OsStr| word.to_string_lossy().into_owned();
    let mut arguments: Vec<String> = command.get_args().map(text).collect();
    for word in client.arguments {
        let word = word.replace("$FETCHED", &folders.cache.display().to_string());
        arguments.push(match &client.program {
            Program::Node { folder, .. } if word == "$NODE" => {
                node::find(&folders.cache.join(folder))?.display().to_string()
            }
            _ => word,
        });
    }
    let start = Start { program: text(command.get_program()), arguments };
    let version = client.version.version(&folders.sources)?;
    let row = Mutex::new(Row { client, version, revision: None, cells: Vec::new() });
    Ok(Prepared { client, start, row })
}

type Job<'a> = (&'a Prepared, &'static Scenario);

/// Runs the jobs in so many threads and prints a line for each cell.
fn run_all(
    jobs: VecDeque<Job<'_>>,
    threads: usize,
    checkout: &Checkout,
    folders: &Folders,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let jobs = Mutex::new(jobs);
    let (line, lines) = mpsc::channel();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let line = line.clone();
                scope.spawn(|| work(&jobs, checkout, folders, line))
            })
            .collect();
        drop(line);
        for text in lines {
            writeln!(out, "{text}")?;
            out.flush()?;
        }
        for worker in workers {
            worker.join().map_err(|_| Failure::Broken("a scenario panicked".to_owned()))??;
        }
        Ok(())
    })
}

fn work(
    jobs: &Mutex<VecDeque<Job<'_>>>,
    checkout: &Checkout,
    folders: &Folders,
    line: Sender<String>,
) -> Result<(), Failure> {
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    while let Some((prepared, scenario)) = next() {
        let started = now();
        let folder = folders.run.join(prepared.client.name).join(scenario.name.replace(' ', "-"));
        let result = run::run(scenario, prepared.client, &prepared.start, checkout, &folder)?;
        let ScenarioResult { cells, revision, wire } = result;
        let mut row = prepared.row.lock().unwrap_or_else(PoisonError::into_inner);
        row.revision = row.revision.take().or(revision);
        let took = seconds(started.elapsed());
        for (column, cell) in scenario.columns().into_iter().zip(cells) {
            let fault = row.fault(&column, &cell);
            let mark = if fault.is_some() { "FAILED" } else { "" };
            let mut text = format!("{:20} {column:24} {cell:24} {took:>6} {mark}", row.client.name);
            if let Some(fault) = fault {
                text += &format!(" {}\n      {}", fault.replace('\n', " "), wire.join("\n      "));
                text += &format!("\n      logs: {}", folder.display());
            }
            // The receiver lives as long as the threads.
            let _ = line.send(text);
            row.cells.push((column, cell));
        }
    }
    Ok(())
}
