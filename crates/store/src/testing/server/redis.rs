//! A Redis server for tests, and a cluster of them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::{absent, free_port, fresh_name, soon};

/// Starts what it is told and ends it when nobody holds its input any more.
const WATCHMAN: &str = r#"redis-server "$@" & read -r _; kill -9 $!"#;

#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    folder: PathBuf,
    process: Option<Child>,
    arguments: Vec<String>,
}

impl RedisServer {
    /// `None` on a developer's machine without Redis; in CI that is a failure.
    pub fn start(arguments: &[&str]) -> Option<Self> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            absent("redis-server");
            return None;
        }
        let mut server = Self {
            port: free_port(),
            folder: std::env::temp_dir().join(fresh_name()),
            process: None,
            arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        };
        std::fs::create_dir_all(&server.folder).expect("a folder for the server");
        server.launch().expect("redis-server starts");
        Some(server)
    }

    /// A cluster of this one server.
    pub fn start_alone(arguments: &[&str]) -> Option<Self> {
        let bus = free_port().to_string();
        let server =
            Self::start(&[&["--cluster-enabled", "yes", "--cluster-port", &bus], arguments].concat())?;
        server.ask("CLUSTER ADDSLOTSRANGE 0 16383").expect("the server answers");
        assert!(soon(|| server.is_in_order()), "the cluster is in order");
        Some(server)
    }

    /// One server for all tests of this process that need nothing special: each has a prefix of its own.
    pub fn shared() -> Option<&'static Self> {
        static SERVER: OnceLock<Option<RedisServer>> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(&[])).as_ref()
    }

    /// Starts it, or starts it again with what it has on disk.
    pub fn launch(&mut self) -> io::Result<()> {
        let process = Command::new("sh")
            .args(["-c", WATCHMAN, "sh", "--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--daemonize", "no", "--dir"])
            .arg(&self.folder)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.process = Some(process);
        if soon(|| self.answers()) { Ok(()) } else { Err(io::Error::other("it does not answer")) }
    }

    fn answers(&self) -> bool {
        // Whoever asks for a password is there, too.
        self.ask("PING").is_ok_and(|answer| answer.starts_with("+PONG") || answer.starts_with("-NOAUTH"))
    }

    /// Whether the cluster that it belongs to has an owner for every key.
    fn is_in_order(&self) -> bool {
        self.ask("CLUSTER INFO").is_ok_and(|answer| answer.contains("cluster_state:ok"))
    }

    fn ask(&self, question: &str) -> io::Result<String> {
        let mut line = TcpStream::connect(("127.0.0.1", self.port))?;
        line.write_all(format!("{question}\r\nQUIT\r\n").as_bytes())?;
        let mut answer = Vec::new();
        line.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Ends it at once, as with `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            process.wait().expect("the server ends");
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        // Left behind, it harms nobody.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A cluster of three servers.
#[derive(Debug)]
pub struct RedisCluster(Vec<RedisServer>);

impl RedisCluster {
    /// One for all tests of this process that do not change it. `None` as with [`RedisServer::start`].
    pub fn shared() -> Option<&'static Self> {
        static CLUSTER: OnceLock<Option<RedisCluster>> = OnceLock::new();
        CLUSTER.get_or_init(|| Self::start(&[])).as_ref()
    }

    /// `None` as with [`RedisServer::start`].
    pub fn start(arguments: &[&str]) -> Option<Self> {
        let server = |_| {
            let bus = free_port().to_string();
            let clustered = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            RedisServer::start(&[&clustered, arguments].concat())
        };
        let servers = (0..3).map(server).collect::<Option<Vec<_>>>()?;
        let create = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(servers.iter().map(|server| format!("127.0.0.1:{}", server.port)))
            .arg("--cluster-yes")
            .stdout(Stdio::null())
            .status();
        assert!(create.is_ok_and(|status| status.success()), "redis-cli makes a cluster");
        assert!(soon(|| servers.iter().all(RedisServer::is_in_order)), "the cluster is in order");
        Some(Self(servers))
    }

    pub fn servers(&mut self) -> &mut [RedisServer] {
        &mut self.0
    }

    pub fn urls(&self) -> Vec<String> {
        self.0.iter().map(RedisServer::url).collect()
    }
}
