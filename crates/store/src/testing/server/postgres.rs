//! A PostgreSQL server for tests.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::{absent, free_port, fresh_name, soon};

/// Where distributions keep it, by version.
const PLACES: [&str; 2] = ["/usr/lib/postgresql", "/opt/homebrew/opt"];

/// The server refuses to run as root. This user is there on every system and has no files.
const NOBODY: u32 = 65534;

/// Starts what it is told and ends it, as a crash would, when nobody holds its input any more.
const WATCHMAN: &str = r#""$@" & read -r _; kill -QUIT $!; wait $!"#;

/// Quick, and as safe as a test needs: it outlives its processes, not the machine.
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
    /// Whom it runs as, if that is not ourselves.
    user: Option<u32>,
    settings: Vec<String>,
    process: Option<Child>,
}

impl PostgresServer {
    /// With settings of its own. `None` on a developer's machine without PostgreSQL; in CI that is a failure.
    pub fn start(settings: &[&str]) -> Option<Self> {
        Self::prepare(settings, |_| ())
    }

    /// The same, with files of the test in its folder before it starts.
    pub fn prepare(settings: &[&str], furnish: impl FnOnce(&Path)) -> Option<Self> {
        let Some(programs) = programs() else {
            absent("postgres");
            return None;
        };
        let folder = std::env::temp_dir().join(fresh_name());
        fs::create_dir_all(&folder).expect("a folder for the server");
        let is_root = fs::metadata(&folder).expect("the folder").uid() == 0;
        let mut server = Self {
            programs,
            port: free_port(),
            folder,
            user: is_root.then_some(NOBODY),
            settings: settings.iter().map(|text| (*text).to_owned()).collect(),
            process: None,
        };
        server.hand_over(&server.folder);
        server.initialize();
        furnish(&server.folder.join("data"));
        for entry in fs::read_dir(server.folder.join("data")).expect("the folder").flatten() {
            server.hand_over(&entry.path());
        }
        server.launch().expect("postgres starts");
        Some(server)
    }

    /// One server for all tests of this process that need nothing special: each has a schema of its own.
    pub fn shared() -> Option<&'static Self> {
        static SERVER: OnceLock<Option<PostgresServer>> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(&[])).as_ref()
    }

    /// Starts it, or starts it again with what it has on disk.
    pub fn launch(&mut self) -> io::Result<()> {
        let mut watchman = self.as_user(Command::new("sh"));
        watchman.args(["-c", WATCHMAN, "sh"]).arg(self.programs.join("postgres"));
        watchman.arg("-D").arg(self.folder.join("data")).args(["-p", &self.port.to_string()]);
        for setting in SETTINGS.iter().copied().chain(self.settings.iter().map(String::as_str)) {
            watchman.args(["-c", setting]);
        }
        let watchman = watchman.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(watchman.spawn()?);
        if soon(|| self.answers()) { Ok(()) } else { Err(io::Error::other("it does not answer")) }
    }

    /// Ends it at once, as a crash would: what was not written is lost, and it has to recover when it starts again.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            process.wait().expect("the server ends");
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address as the one who may do everything.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Says something to the server directly, and gives what it answers: a line for each row, `|` between columns.
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

    fn hand_over(&self, path: &Path) {
        if self.user.is_some() {
            chown(path, self.user, self.user).expect("root may give files away");
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
        // Left behind, it harms nobody.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The folder with its programs: the newest of those that the distribution has, or where the shell finds them.
fn programs() -> Option<PathBuf> {
    let installed = PLACES.iter().flat_map(fs::read_dir).flatten().flatten();
    let mut found: Vec<PathBuf> = installed.map(|entry| entry.path().join("bin")).collect();
    found.sort_by_key(|folder| (folder.as_os_str().len(), folder.clone()));
    let in_path = std::env::var_os("PATH");
    let in_path = in_path.iter().flat_map(std::env::split_paths);
    found.into_iter().rev().chain(in_path).find(|folder| folder.join("initdb").is_file())
}
