//! A Redis server for tests, and a cluster of three.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::{becomes_true, free_port, fresh_name, report_missing};

/// A shell script that runs the server, and kills it when its standard input closes.
const SUPERVISOR_SCRIPT: &str = r#"redis-server "$@" & read -r _; kill -9 $!"#;

#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    folder: PathBuf,
    process: Option<Child>,
    arguments: Vec<String>,
}

impl RedisServer {
    /// Starts a server. Returns `None` on a developer's machine without Redis; in CI that is a
    /// failure.
    pub fn start(arguments: &[&str]) -> Option<Self> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            report_missing("redis-server");
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

    /// Starts a cluster that consists of one server.
    pub fn start_single_node_cluster(arguments: &[&str]) -> Option<Self> {
        let bus = free_port().to_string();
        let server =
            Self::start(&[&["--cluster-enabled", "yes", "--cluster-port", &bus], arguments].concat())?;
        server.ask("CLUSTER ADDSLOTSRANGE 0 16383").expect("the server answers");
        assert!(becomes_true(|| server.is_cluster_ok()), "the cluster is in order");
        Some(server)
    }

    /// Returns one server for all tests of this process that need nothing special. Each test uses
    /// its own prefix.
    pub fn shared() -> Option<&'static Self> {
        static SERVER: OnceLock<Option<RedisServer>> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(&[])).as_ref()
    }

    /// Starts the server, or restarts it with the data on disk.
    pub fn launch(&mut self) -> io::Result<()> {
        let process = Command::new("sh")
            .args(["-c", SUPERVISOR_SCRIPT, "sh", "--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--daemonize", "no", "--dir"])
            .arg(&self.folder)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.process = Some(process);
        if becomes_true(|| self.answers()) {
            Ok(())
        } else {
            Err(io::Error::other("the server did not start in time"))
        }
    }

    fn answers(&self) -> bool {
        // A server that requires a password is running as well.
        self.ask("PING").is_ok_and(|answer| answer.starts_with("+PONG") || answer.starts_with("-NOAUTH"))
    }

    /// Returns true if every slot of the server's cluster is served.
    fn is_cluster_ok(&self) -> bool {
        self.ask("CLUSTER INFO").is_ok_and(|answer| answer.contains("cluster_state:ok"))
    }

    fn ask(&self, question: &str) -> io::Result<String> {
        let mut line = TcpStream::connect(("127.0.0.1", self.port))?;
        line.write_all(format!("{question}\r\nQUIT\r\n").as_bytes())?;
        let mut answer = Vec::new();
        line.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Ends the server at once, as with `kill -9`.
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
        // A folder that cannot be removed does no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A cluster of three servers.
#[derive(Debug)]
pub struct RedisCluster(Vec<RedisServer>);

impl RedisCluster {
    /// Returns one cluster for all tests of this process that do not change it. Returns `None` like
    /// [`RedisServer::start`].
    pub fn shared() -> Option<&'static Self> {
        static CLUSTER: OnceLock<Option<RedisCluster>> = OnceLock::new();
        CLUSTER.get_or_init(|| Self::start(&[])).as_ref()
    }

    /// Starts a cluster. Returns `None` like [`RedisServer::start`].
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
        assert!(becomes_true(|| servers.iter().all(RedisServer::is_cluster_ok)), "the cluster is in order");
        Some(Self(servers))
    }

    pub fn servers(&mut self) -> &mut [RedisServer] {
        &mut self.0
    }

    pub fn urls(&self) -> Vec<String> {
        self.0.iter().map(RedisServer::url).collect()
    }
}
