//! `cargo xtask interop --servers`: servers built on other people's SDKs, directly and behind our gateway.
//!
//! `interop/driver` plays the steps, once for each side, and prints a line of JSON per step; here servers are made ready, and
//! what came of it is shown side by side.

mod catalogue;
mod report;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::Places;
use crate::failure::Failure;
use crate::prepare;
use crate::runner::{now, seconds};
use catalogue::{SERVERS, STEPS, Server, Way};
use report::{Report, Row, Verdict};

const DRIVER: &str = "steadfast-interop-driver";
/// For one step; the driver gives up sooner.
const STEP_LIMIT: Duration = Duration::from_secs(90);
/// How long the driver may take to end after its last step.
const END_LIMIT: Duration = Duration::from_secs(10);

/// One side of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Direct,
    Gateway,
}

/// Plays with the servers named, or all of them. With `--direct` the gateway is left out.
pub(crate) fn command(root: &Path, arguments: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    let (options, names): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|word| word.starts_with("--"));
    if let Some(unknown) = options.iter().find(|option| **option != "--direct") {
        return Err(Failure::Usage(format!("`interop --servers` takes no `{unknown}`")));
    }
    if let Some(unknown) = names.iter().find(|name| SERVERS.iter().all(|server| server.name != **name)) {
        let known = SERVERS.iter().map(|server| server.name).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("no server `{unknown}`; there are {known}")));
    }
    let sides: &[Side] = if options.is_empty() { &[Side::Direct, Side::Gateway] } else { &[Side::Direct] };
    let places = Places::new(root, "interop/servers", "interop/servers")?;
    let log = places.run.join("build.log");
    let programs: &[&str] = if sides.contains(&Side::Gateway) { &[DRIVER, "steadfast"] } else { &[DRIVER] };
    prepare::build(root, programs, &log, out)?;
    let mut report = Report::default();
    let is_chosen = |server: &&Server| {
        (names.is_empty() || names.contains(&server.name))
            && (server.way == Way::Http || sides.contains(&Side::Gateway))
    };
    for server in SERVERS.iter().filter(is_chosen) {
        if let Some(missing) = server.program.missing_tools() {
            writeln!(out, "{}: skipped, {missing}", server.name)?;
            report.skip(server.name, missing);
            continue;
        }
        let folder = places.run.join(server.name);
        fs::create_dir_all(&folder)?;
        let start = server.program.prepare(root, &places, &folder.join("prepare.log"), out)?;
        let mut row = Row::new(server.name, server.sdk(root)?);
        for side in sides {
            if *side == Side::Direct && server.way == Way::Stdio {
                continue;
            }
            play(server, *side, &start, &places, &mut row, out)?;
        }
        report.add(row);
    }
    report.write(&places.cache.join("results.json"), out)?;
    report.print(out)
}

/// Has the driver play all steps on one side.
fn play(
    server: &Server,
    side: Side,
    start: &Command,
    places: &Places,
    row: &mut Row,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let name = if side == Side::Direct { "direct" } else { "gateway" };
    let folder = places.run.join(server.name).join(name);
    fs::create_dir_all(&folder)?;
    let mut driver = Command::new(places.programs.join(DRIVER));
    driver.arg("--folder").arg(&folder);
    if side == Side::Gateway {
        driver.arg("--gateway").arg(places.programs.join("steadfast"));
        if server.way == Way::Stdio {
            driver.arg("--stdio");
        }
    }
    driver.arg("--").arg(start.get_program()).args(start.get_args());
    let log = File::create(folder.join("driver.log"))?;
    let mut child = driver.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
    let (line, lines) = mpsc::channel();
    let stdout = child.stdout.take();
    thread::spawn(move || {
        // Nobody listens any more once a step took too long.
        let mut text = stdout.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok);
        text.all(|text| line.send(text).is_ok())
    });
    for step in STEPS {
        let started = now();
        let verdict = match lines.recv_timeout(STEP_LIMIT) {
            Ok(text) => Verdict::read(step, &text),
            Err(_) => Verdict::silence(),
        };
        let took = seconds(started.elapsed());
        writeln!(
            out,
            "{:16} {name:8} {step:15} {:10} {took:>6}  {}",
            server.name, verdict.word, verdict.detail
        )?;
        out.flush()?;
        row.set(step, side, verdict);
    }
    // It has servers of its own to end.
    let ending = now();
    while child.try_wait()?.is_none() && ending.elapsed() < END_LIMIT {
        thread::sleep(Duration::from_millis(20));
    }
    // Over already, or overdue.
    let _ = child.kill();
    child.wait()?;
    Ok(())
}
