//! Servers for tests, each on a port and in a folder of its own. They end with their owner, however that ends.

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

/// How long a server may take to start, and how often to look.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);

/// A name that nothing else has: a prefix for keys, a schema, or a folder.
pub fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("steadfast-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What is to be done without a program that is not there: a developer does without the tests, CI does not.
fn absent(program: &str) {
    assert!(std::env::var_os("CI").is_none(), "there is no `{program}` here");
    eprintln!("skipped: there is no `{program}` here (in CI this is a failure)");
}

/// Whether something comes true before long.
fn soon(holds: impl Fn() -> bool) -> bool {
    let looks = PATIENCE.as_millis() / LOOK.as_millis();
    (0..looks).any(|_| {
        let held = holds();
        if !held {
            std::thread::sleep(LOOK);
        }
        held
    })
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}
