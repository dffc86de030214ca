//! Databases that gateways share, each in the current directory and on a port of its own.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueEnum;

use crate::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Database {
    Redis,
    Postgres,
}

impl Database {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
        }
    }

    pub(crate) fn is_installed(self) -> bool {
        match self {
            Self::Redis => answers(Command::new("redis-server").arg("--version")),
            Self::Postgres => postgres("initdb").is_some() && postgres("postgres").is_some(),
        }
    }

    /// Becomes the server, so that the process that was started is the one that serves and the one that a kill ends.
    pub(super) fn exec(self) -> Result<(), Error> {
        let address = super::proxy::free_address()?;
        let mut command = match self {
            Self::Redis => redis(address),
            Self::Postgres => cluster(address)?,
        };
        let place = match self {
            Self::Redis => String::new(),
            Self::Postgres => "postgres@".to_owned(),
        };
        let path = if self == Self::Postgres { "/postgres" } else { "" };
        super::say(&format!("{}://{place}{address}{path}", self.name()))?;
        let failure = command.stdout(Stdio::null()).stderr(Stdio::null()).exec();
        Err(format!("{} did not start: {failure}", self.name()).into())
    }
}

/// As the manual advises: with a log that is written to disk every second.
fn redis(address: SocketAddr) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()]);
    command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "everysec", "--dir", "."]);
    command
}

/// Everything at its default, which is to write each commit to disk before it is acknowledged.
fn cluster(address: SocketAddr) -> Result<Command, Error> {
    let folder = std::env::current_dir()?;
    let missing = |name: &str| format!("there is no `{name}` of PostgreSQL here");
    let data = folder.join("data");
    // It refuses to run as root.
    if answers(Command::new("chown").args(["nobody", "."])) {
        std::fs::create_dir_all(&data)?;
        answers(Command::new("chown").arg("nobody").arg(&data));
    }
    let mut initdb = as_nobody(&postgres("initdb").ok_or_else(|| missing("initdb"))?);
    initdb.args(["--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--pgdata"]).arg(&data);
    if !initdb.stdout(Stdio::null()).status()?.success() {
        return Err("initdb failed".into());
    }
    let mut server = as_nobody(&postgres("postgres").ok_or_else(|| missing("postgres"))?);
    server.arg("-D").arg(&data).args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
    server.arg("-k").arg(&data);
    Ok(server)
}

/// The program as an ordinary user, if this one is not.
fn as_nobody(program: &Path) -> Command {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "nobody", "--clear-groups", "--"]).arg(program);
    command
}

/// A program of PostgreSQL: distributions do not put its server into the path.
fn postgres(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin").join(name)).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    found.extend(std::env::split_paths(&path).map(|folder| folder.join(name)));
    found.into_iter().find(|path| path.is_file())
}

fn answers(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
