//! A Redis server for tests, on a port of its own.

use std::io;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    port: u16,
    directory: TempDir,
    process: Option<Child>,
    arguments: Vec<String>,
}

impl Server {
    /// `None` on a developer's machine without Redis; elsewhere that is a failure.
    pub(crate) fn start(arguments: &[&str]) -> Option<Self> {
        let mut server = Self {
            port: free_port(),
            directory: tempfile::tempdir().expect("a directory for the server"),
            process: None,
            arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        };
        match server.launch() {
            Ok(()) => Some(server),
            Err(error) if error.kind() == io::ErrorKind::NotFound && std::env::var_os("CI").is_none() => {
                eprintln!("skipped: there is no `redis-server` here (in CI this is a failure)");
                None
            }
            Err(error) => panic!("redis-server does not start: {error}"),
        }
    }

    pub(crate) fn launch(&mut self) -> io::Result<()> {
        let process = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--daemonize", "no", "--dir"])
            .arg(self.directory.path())
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.process = Some(process);
        let start = Instant::now();
        while self.try_ask("PING").is_err() {
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other("it does not answer"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Ends at once, as with `kill -9`.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().and_then(|()| process.wait()).expect("the server ends");
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn connect(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(self.url())?.get_connection()
    }

    fn try_ask(&self, command: &str) -> redis::RedisResult<redis::Value> {
        let mut request = redis::Cmd::new();
        command.split(' ').for_each(|word| {
            request.arg(word);
        });
        request.query(&mut self.connect()?)
    }

    /// Sends a command, its words parted by blanks, and waits for the answer.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, command: &str) -> T {
        let value = self.try_ask(command).expect("the server answers");
        redis::from_redis_value(value).expect("an answer of this kind")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// One server for all tests of this process that need nothing special: each has a prefix of its own.
pub(crate) fn shared() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(&[])).as_ref()
}

/// A prefix that no other test of this process uses.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
