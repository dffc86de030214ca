//! Child processes do not outlive the process that started them, however that process ends.
//!
//! The test starts this very test binary again, which becomes a process with programs of its own
//! and is then killed.

use std::process::Stdio as Pipe;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::support::*;

/// Set in the process that is to be killed.
const VICTIM: &str = "STEADFAST_TEST_VICTIM";

/// How that process ends.
#[derive(Clone, Copy, Debug)]
enum Death {
    Killed,
    Aborts,
}

/// Runs in the process that is to be killed, and nowhere else.
#[tokio::test]
async fn victim() {
    let Ok(death) = std::env::var(VICTIM) else { return };
    let alone = alone("stubborn").await;
    let answer = value(call(&alone.client, "grandchild", json!({})).await);
    println!("\npids {} {}", answer["pid"], answer["grandchild"]);
    if death == "Aborts" {
        std::process::abort();
    }
    std::future::pending::<()>().await;
}

async fn check(death: Death) {
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "stdio::outliving::victim", "--nocapture"]).env(VICTIM, format!("{death:?}"));
    victim.stdin(Pipe::null()).stdout(Pipe::piped()).stderr(Pipe::null()).kill_on_drop(true);
    let mut victim = victim.spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let pids: Vec<u64> = within("the programs", async {
        loop {
            let line = lines.next_line().await.unwrap().expect("the victim says its pids");
            if let Some(pids) = line.strip_prefix("pids ") {
                return pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
            }
        }
    })
    .await;
    if matches!(death, Death::Killed) {
        assert!(pids.iter().all(|pid| is_running(*pid)), "{pids:?}");
        victim.start_kill().unwrap();
    }
    within("the end of the victim", victim.wait()).await.unwrap();
    // They ignore SIGTERM and a closed input.
    tokio::time::timeout(Duration::from_secs(10), async {
        for pid in pids {
            gone(pid).await;
        }
    })
    .await
    .expect("its programs end");
}

#[tokio::test]
async fn programs_end_when_their_owner_is_killed() {
    check(Death::Killed).await;
}

#[tokio::test]
async fn programs_end_when_their_owner_aborts() {
    check(Death::Aborts).await;
}
