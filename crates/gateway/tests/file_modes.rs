//! The permissions of the session file: private to its owner, unless the operator has decided
//! otherwise.
#![cfg(unix)]

mod support;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use support::Server;
use tempfile::TempDir;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("the owner may change the mode");
}

/// Starts a gateway with the demo server, opens a session, kills the gateway, and returns its log.
fn run(directory: &TempDir, more: &[&str]) -> String {
    let (log, data) = (directory.path().join("log"), directory.path().join("data"));
    let data = data.to_str().expect("a path of text");
    let arguments = [&["--demo", "--listen", "127.0.0.1:0"], more].concat();
    let server = Server::serve_logged(&arguments, &log, &[("XDG_DATA_HOME", data)]);
    server.open_session();
    server.kill();
    std::fs::read_to_string(log).expect("a log")
}

#[test]
fn the_default_store_is_made_private() {
    let directory = tempfile::tempdir().expect("a folder");
    let folder = directory.path().join("data/steadfast");
    let log = run(&directory, &[]);
    let files = || -> Vec<PathBuf> {
        std::fs::read_dir(&folder).expect("the folder").map(|file| file.expect("a file").path()).collect()
    };
    let are_private = || mode(&folder) == 0o700 && files().iter().all(|file| mode(file) == 0o600);
    assert!(files().len() >= 3 && are_private(), "{:?}", files());
    assert!(!log.contains("permissions of other users"), "{log}");
    // The permissions of an earlier version.
    set_mode(&folder, 0o755);
    for name in ["sessions.db", "sessions.db-wal", "sessions.db-shm"] {
        set_mode(&folder.join(name), 0o644);
    }
    let log = run(&directory, &[]);
    assert!(are_private(), "{:?}", files());
    assert_eq!(
        log.lines().filter(|line| line.contains("removed the permissions of other users")).count(),
        4,
        "{log}"
    );
}

#[test]
fn a_configured_file_keeps_its_mode_with_a_warning() {
    let directory = tempfile::tempdir().expect("a folder");
    let file = directory.path().join("named.db");
    let store = format!("sqlite:{}", file.display());
    let warning = "every user of this machine can read the session store";
    for (before, after, is_warned) in
        [(None, 0o600, false), (Some(0o640), 0o640, false), (Some(0o644), 0o644, true)]
    {
        before.into_iter().for_each(|before| set_mode(&file, before));
        let log = run(&directory, &["--store", &store]);
        assert_eq!((mode(&file), log.contains(warning)), (after, is_warned), "{before:?}: {log}");
    }
}
