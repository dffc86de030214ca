//! After `kill -9`, acknowledged commands are kept, and calls in flight get an error.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use steadfast_session::StreamNo;
use steadfast_session::command::{Finish, Finished};
use steadfast_store::Store;

use crate::common::{NODE, NOW, begin_call, id, only_event, open, open_session, run};

/// Passes the path of the file to a copy of this test program, which will be killed.
const FILE: &str = "STEADFAST_TEST_VICTIM";

/// Marks the lines of the victim among those of the test harness.
const MARK: &str = "victim: ";

/// The process that will be killed. Does nothing in an ordinary run.
#[tokio::test]
async fn victim() {
    let Some(file) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let store = open(&file);
    store.join(NODE, NOW).await.unwrap();
    let session = open_session(&store, 1).await;
    for attempt in 0.. {
        let (stream, call) = begin_call(&store, session, attempt).await;
        report(&format!("begun {stream}"));
        if attempt % 3 != 0 {
            let payload = Bytes::from(format!("answer {stream}"));
            let finished = run(&store, session, Finish { call, payload }).await;
            assert!(matches!(finished, Finished::Finished { .. }));
            report(&format!("finished {stream}"));
        }
    }
}

fn report(what: &str) {
    let mut out = std::io::stdout().lock();
    // Exit when the test has stopped reading.
    if writeln!(out, "\n{MARK}{what}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn start_victim(file: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "crash::victim", "--nocapture"])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the victim starts")
}

/// Kills the victim after this many reports, and returns all of its reports.
fn kill_after(mut victim: Child, reports: usize) -> Vec<String> {
    let lines = BufReader::new(victim.stdout.take().expect("its output")).lines();
    let mut reports_seen = Vec::new();
    let mut killed = false;
    for line in lines.map_while(Result::ok) {
        let Some(report) = line.strip_prefix(MARK) else { continue };
        reports_seen.push(report.to_owned());
        if reports_seen.len() >= reports && !killed {
            victim.kill().expect("the victim is killed");
            killed = true;
        }
    }
    victim.wait().expect("the victim is gone");
    assert!(killed, "the victim ended by itself after {reports_seen:?}");
    reports_seen
}

#[tokio::test]
async fn acknowledged_commands_survive_kill_9() {
    for reports in [1, 2, 7, 40, 200] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sessions.db");
        let reports_seen = kill_after(start_victim(&file), reports);
        let store = open(&file);
        // The kernel released the lock of the dead process, so it is found dead at once, and only
        // once.
        assert_eq!(store.reap_dead_nodes(NOW).await, Ok(1));
        assert_eq!(store.reap_dead_nodes(NOW).await, Ok(0));
        for report in &reports_seen {
            let (what, stream) = report.split_once(' ').unwrap();
            let stream = StreamNo(stream.parse().unwrap());
            let event = only_event(&store, id(1), stream).await;
            let finished = reports_seen.contains(&format!("finished {stream}"));
            match (what, finished) {
                (_, true) => assert_eq!(event, format!("answer {stream}")),
                // The call was not finished, or the victim was killed between the commit and its
                // report.
                _ => assert!(event.contains("outcome_unknown") || event == format!("answer {stream}")),
            }
        }
        assert_eq!(lock_files(folder.path()), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn a_live_process_is_not_reaped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let one = open(&file);
    one.join(NODE, NOW).await.unwrap();
    let session = open_session(&one, 1).await;
    let (stream, call) = begin_call(&one, session, 1).await;
    let two = open(&file);
    assert_eq!(two.reap_dead_nodes(NOW).await, Ok(0));
    assert_eq!(one.reap_dead_nodes(NOW).await, Ok(0), "nor by itself");
    let finish = Finish { call, payload: Bytes::from_static(b"done") };
    assert!(matches!(run(&one, session, finish).await, Finished::Finished { .. }));
    assert_eq!(only_event(&two, session, stream).await, "done");
}

#[tokio::test]
async fn a_node_that_leaves_fails_its_calls_and_removes_its_lock_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("sessions.db"));
    store.join(NODE, NOW).await.unwrap();
    assert_eq!(lock_files(folder.path()).len(), 1);
    let session = open_session(&store, 1).await;
    let (stream, _) = begin_call(&store, session, 1).await;
    store.leave(NODE, NOW).await.unwrap();
    assert!(only_event(&store, session, stream).await.contains("outcome_unknown"));
    assert_eq!(lock_files(folder.path()), Vec::<PathBuf>::new());
}

fn lock_files(directory: &Path) -> Vec<PathBuf> {
    let files =
        std::fs::read_dir(directory).expect("the directory").map(|entry| entry.expect("an entry").path());
    files.filter(|path| path.to_string_lossy().contains("-node-")).collect()
}
