//! Files that a store cannot use are refused with a helpful error.

use std::path::Path;

use rusqlite::Connection;
use steadfast_store::{Store as _, StoreError};

use crate::common::{NODE, NOW, open, try_open};

fn refused(file: &Path) -> StoreError {
    try_open(file).expect_err("this file must be refused")
}

fn check_corrupt(file: &Path, expected: &str) {
    match refused(file) {
        StoreError::Corrupt(text) => {
            assert!(text.contains(expected), "{text:?} does not say {expected:?}");
            assert!(text.contains(&*file.display().to_string()), "{text:?} does not name the file");
        }
        other => panic!("{other:?}"),
    }
}

/// Other users of the machine cannot read the sessions.
#[cfg(unix)]
#[tokio::test]
async fn files_are_readable_by_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let store = open(&file);
    store.join(NODE, NOW).await.unwrap();
    let mut files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let found: Vec<_> =
        files.iter().map(|path| (path.file_name().unwrap().to_str().unwrap(), mode(path))).collect();
    let expect = ["sessions.db", "sessions.db-node-0000000000000007", "sessions.db-shm", "sessions.db-wal"];
    assert_eq!(found, expect.map(|name| (name, 0o600)));
    drop(store);
    // The store does not change the mode of an existing file.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    drop(open(&file));
    assert_eq!(mode(&file), 0o640);
}

#[test]
fn another_schema_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    drop(open(&file));
    for (version, expected) in [
        (5, "newer release"),
        (3, "start with a new file"),
        (2, "start with a new file"),
        (1, "start with a new file"),
    ] {
        Connection::open(&file).unwrap().pragma_update(None, "user_version", version).unwrap();
        check_corrupt(&file, expected);
    }
}

#[test]
fn another_programs_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.db");
    Connection::open(&file).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let before = std::fs::read(&file).unwrap();
    check_corrupt(&file, "another program");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn garbage_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("garbage.db");
    let garbage = vec![b'x'; 20_000];
    std::fs::write(&file, &garbage).unwrap();
    check_corrupt(&file, "not a SQLite database");
    assert_eq!(std::fs::read(&file).unwrap(), garbage);
}

#[test]
fn a_damaged_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    drop(open(&file));
    let mut bytes = std::fs::read(&file).unwrap();
    // Damage all pages except the first, which identifies the file as a session store.
    bytes[4096..].fill(0xff);
    bytes.truncate(4096 + 4096 / 2);
    std::fs::write(&file, bytes).unwrap();
    let error = refused(&file);
    assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
}

#[test]
fn a_missing_directory_is_named_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    check_unusable(&folder.path().join("nowhere").join("sessions.db"));
}

/// Not even root can create files there.
#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_cannot_be_written_is_named_and_explained() {
    check_unusable(Path::new("/sys/kernel/sessions.db"));
}

fn check_unusable(file: &Path) {
    match refused(file) {
        StoreError::Unavailable(text) => {
            assert!(text.contains(&*file.display().to_string()), "{text}");
            assert!(text.contains("must exist") && text.contains("writable"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

/// Each round is a new file, because SQLite refuses a lock at once only in a part of the rounds.
#[test]
fn processes_that_start_at_once_create_one_file() {
    for _ in 0..100 {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sessions.db");
        std::thread::scope(|scope| {
            let openers: Vec<_> = (0..8).map(|_| scope.spawn(|| try_open(&file).map(drop))).collect();
            for opener in openers {
                assert_eq!(opener.join().unwrap(), Ok(()));
            }
        });
    }
}
