//! A PostgreSQL server for tests.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::{fs, io};

use super::{becomes_true, free_port, fresh_name, report_missing};

/// Where distributions install PostgreSQL, by version.
const INSTALL_FOLDERS: [&str; 2] = ["/usr/lib/postgresql", "/opt/homebrew/opt"];

/// The server refuses to run as root. This user exists on every system and owns no files.
const UNPRIVILEGED_USER: u32 = 65534;

/// A shell script that runs the server, and ends it like a crash when its standard input closes.
const SUPERVISOR_SCRIPT: &str = r#""$@" & read -r _; kill -QUIT $!; wait $!"#;

/// Fast, and as durable as a test needs: data survives the server's processes but not the machine.
const SETTINGS: [&str; 7] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "full_page_writes=off",
    "max_connections=400",
    "shared_buffers=32MB",
    "log_min_messages=fatal",
];

#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    port: u16,
    folder: PathBuf,
    /// The user that the server runs as, if not the current one.
    user: Option<u32>,
    settings: Vec<String>,
    process: Option<Child>,
}

impl PostgresServer {
    /// Starts a server with additional settings. Returns `None` on a developer's machine without
    /// PostgreSQL; in CI that is a failure.
    pub fn start(settings: &[&str]) -> Option<Self> {
        Self::prepare(settings, |_| ())
    }

    /// Like [`PostgresServer::start`], but lets the test add files to the data folder before the
    /// start.
    pub fn prepare(settings: &[&str], add_files: impl FnOnce(&Path)) -> Option<Self> {
        let Some(programs) = programs() else {
            report_missing("postgres");
            return None;
        };
        let folder = std::env::temp_dir().join(fresh_name());
        fs::create_dir_all(&folder).expect("a folder for the server");
        let is_root = fs::metadata(&folder).expect("the folder").uid() == 0;
        let mut server = Self {
            programs,
            port: free_port(),
            folder,
            user: is_root.then_some(UNPRIVILEGED_USER),
            settings: settings.iter().map(|text| (*text).to_owned()).collect(),
            process: None,
        };
        server.give_to_server_user(&server.folder);
        server.initialize();
        add_files(&server.folder.join("data"));
        for entry in fs::read_dir(server.folder.join("data")).expect("the folder").flatten() {
            server.give_to_server_user(&entry.path());
        }
        server.launch().expect("postgres starts");
        Some(server)
    }

    /// Returns one server for all tests of this process that need nothing special. Each test uses
    /// its own schema.
    pub fn shared() -> Option<&'static Self> {
        static SERVER: OnceLock<Option<PostgresServer>> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(&[])).as_ref()
    }

    /// Starts the server, or restarts it with the data on disk.
    pub fn launch(&mut self) -> io::Result<()> {
        let mut supervisor = self.as_user(Command::new("sh"));
        supervisor.args(["-c", SUPERVISOR_SCRIPT, "sh"]).arg(self.programs.join("postgres"));
        supervisor.arg("-D").arg(self.folder.join("data")).args(["-p", &self.port.to_string()]);
        for setting in SETTINGS.iter().copied().chain(self.settings.iter().map(String::as_str)) {
            supervisor.args(["-c", setting]);
        }
        let supervisor = supervisor.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(supervisor.spawn()?);
        if becomes_true(|| self.answers()) {
            Ok(())
        } else {
            Err(io::Error::other("the server did not start in time"))
        }
    }

    /// Ends the server at once, like a crash: what was not written is lost, and the server must
    /// recover when it restarts.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            process.wait().expect("the server ends");
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address, with the superuser.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Runs SQL with `psql` and returns its output: one line per row, `|` between columns.
    pub fn ask(&self, sql: &str) -> String {
        let mut psql = self.program("psql");
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]);
        let output = psql.args([&self.url(), "--command", sql]).output().expect("psql runs");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn initialize(&self) {
        let mut initdb = self.program("initdb");
        initdb.arg("-D").arg(self.folder.join("data"));
        initdb.args(["--username=postgres", "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8"]);
        let output = initdb.output().expect("initdb runs");
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn answers(&self) -> bool {
        let mut ready = self.program("pg_isready");
        ready.args(["--quiet", "--host=127.0.0.1", "--port", &self.port.to_string()]);
        ready.status().is_ok_and(|status| status.success())
    }

    fn program(&self, name: impl AsRef<OsStr> + AsRef<Path>) -> Command {
        self.as_user(Command::new(self.programs.join(name)))
    }

    fn as_user(&self, mut command: Command) -> Command {
        command.current_dir(&self.folder).stdin(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    fn give_to_server_user(&self, path: &Path) {
        if self.user.is_some() {
            chown(path, self.user, self.user).expect("root may give files away");
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
        // A folder that cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the folder with the server's programs: the newest version that the distribution has, or
/// else the first in `PATH`.
fn programs() -> Option<PathBuf> {
    let installed = INSTALL_FOLDERS.iter().flat_map(fs::read_dir).flatten().flatten();
    let mut found: Vec<PathBuf> = installed.map(|entry| entry.path().join("bin")).collect();
    found.sort_by_key(|folder| (folder.as_os_str().len(), folder.clone()));
    let in_path = std::env::var_os("PATH");
    let in_path = in_path.iter().flat_map(std::env::split_paths);
    found.into_iter().rev().chain(in_path).find(|folder| folder.join("initdb").is_file())
}
