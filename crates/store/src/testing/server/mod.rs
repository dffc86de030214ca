//! Database servers for tests, each with its own port and folder. A server ends when its owner is
//! dropped, and also if the test process is killed.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[cfg(feature = "postgres")]
pub use postgres::PostgresServer;
#[cfg(feature = "redis")]
pub use redis::{RedisCluster, RedisServer};

/// How long a server may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How often to check whether a server has started.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Returns a unique name, for a key prefix, a schema or a folder.
pub fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("steadfast-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Reports that a program is missing. On a developer's machine the tests are skipped; in CI this is
/// a failure.
fn report_missing(program: &str) {
    assert!(std::env::var_os("CI").is_none(), "`{program}` is not installed");
    eprintln!("skipped: `{program}` is not installed (in CI this is a failure)");
}

/// Waits until a condition holds. Returns false after [`START_TIMEOUT`].
fn becomes_true(condition: impl Fn() -> bool) -> bool {
    let polls = START_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis();
    (0..polls).any(|_| {
        let is_true = condition();
        if !is_true {
            std::thread::sleep(POLL_INTERVAL);
        }
        is_true
    })
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}
