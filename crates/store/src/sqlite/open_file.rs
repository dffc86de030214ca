//! Opens the database file: checks that it is a session store, creates the tables, sets the
//! pragmas.

#[cfg(unix)]
use std::fs::OpenOptions;
use std::path::Path;
#[cfg(unix)]
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags, TransactionBehavior};

use super::errors::classify_error;
use super::{Durability, SqliteOptions};
use crate::error::StoreError;

const TABLES: &str = include_str!("schema.sql");

/// The version of the schema, stored as `user_version`. Files with another version are refused.
const VERSION: i64 = 4;

/// Identifies the file as a session store ("stdf"), stored as `application_id`. This program never
/// writes to the database of another program.
const APPLICATION: i64 = 0x7374_6466;

/// How many pages the write-ahead log may have before they are moved to the database: 32 MiB. A
/// page that many commits change in between is moved once.
const CHECKPOINT_PAGES: i64 = 8192;

/// The size that the write-ahead log is truncated to after it had to grow.
const LOG_BYTES: i64 = 64 << 20;

/// The page caches of the writer and of a reader, in KiB.
const WRITER_CACHE_KIB: i64 = 4 << 10;
const READER_CACHE_KIB: i64 = 2 << 10;

/// Opens the connection for writing, and creates the tables if the file is new.
pub(super) fn open_writer(path: &Path, options: &SqliteOptions) -> Result<Connection, StoreError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    create_private(path);
    let mut connection = Connection::open_with_flags(path, flags).map_err(|error| explain(path, &error))?;
    prepare_writer(&mut connection, options)
        .map_err(|error| explain(path, &error))?
        .map_err(|refusal| StoreError::Corrupt(format!("{}: {refusal}", path.display())))?;
    Ok(connection)
}

/// Creates the file, readable only by its owner, unless it exists. SQLite gives the files beside it
/// (`-wal`, `-shm`) the mode of the database.
#[cfg(unix)]
fn create_private(path: &Path) {
    use std::os::unix::fs::OpenOptionsExt as _;
    // When a process closes a file, it loses all its locks on the file, including those of SQLite.
    // So this never opens an existing file, and no two threads create a file at the same time.
    static CREATING: Mutex<()> = Mutex::new(());
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    // SQLite reports any error when it opens the file, and `explain` describes it.
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
}

#[cfg(not(unix))]
fn create_private(_path: &Path) {}

/// Opens a connection for reading. The file exists and was checked before.
pub(super) fn open_reader(path: &Path, options: &SqliteOptions) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(options.busy_timeout)?;
        connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
        Ok(connection)
    };
    open().map_err(|error| explain(path, &error))
}

fn prepare_writer(
    connection: &mut Connection,
    options: &SqliteOptions,
) -> rusqlite::Result<Result<(), &'static str>> {
    connection.busy_timeout(options.busy_timeout)?;
    // Check before the first write, because the file of another program must not change. Use a
    // transaction, because another process may be creating the tables.
    let inspection = connection.transaction()?;
    if let Err(refusal) = inspect(&inspection)? {
        return Ok(Err(refusal));
    }
    drop(inspection);
    use_write_ahead_log(connection, options.busy_timeout)?;
    let synchronous = match options.durability {
        // The kernel has the write-ahead log after each commit, so nothing is lost when the process
        // ends. The log is flushed to the disk only before a checkpoint: a power cut may lose the
        // last commits but never damages the file. With OFF it could.
        Durability::Process => "NORMAL",
        Durability::Power => "FULL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // No mmap: with it, an I/O error would end the process with SIGBUS instead of failing one
    // command.
    connection.pragma_update_and_check(None, "mmap_size", 0, |_| Ok(()))?;
    create(connection)
}

/// Switches the file to the write-ahead log. Fails with `SQLITE_BUSY` if another process holds its
/// lock for longer than `busy_timeout`.
///
/// SQLite does not call its own busy handler for this pragma: two processes that open a new file at
/// the same time both hold a read lock, and one of them gets `SQLITE_BUSY` at once.
fn use_write_ahead_log(connection: &Connection, busy_timeout: Duration) -> rusqlite::Result<()> {
    const ATTEMPTS: u32 = 100;
    for _ in 1..ATTEMPTS {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                std::thread::sleep(busy_timeout / ATTEMPTS);
            }
            result => return result,
        }
    }
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
}

/// Returns true if the file is new, and false if it is a session store of this version. Returns the
/// reason if the file must not be used.
fn inspect(connection: &Connection) -> rusqlite::Result<Result<bool, &'static str>> {
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (application, version) {
        (APPLICATION, VERSION) => Ok(false),
        // Earlier versions were never released.
        (APPLICATION, ..VERSION) => {
            Err("this file was written before the first release: start with a new file")
        }
        (APPLICATION, _) => {
            Err("this file was written by a newer release. Use that release, or start with a new file")
        }
        (0, 0) if tables == 0 => Ok(true),
        _ => Err("this is the database of another program. Choose another file for the session store"),
    })
}

fn create(connection: &mut Connection) -> rusqlite::Result<Result<(), &'static str>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Check again, because another process may have created the tables.
    match inspect(&transaction)? {
        Ok(false) => {
            // A truncated file fails here and not later during a call.
            transaction.query_row("SELECT sessions, bytes FROM total", [], |_| Ok(()))?;
            return Ok(Ok(()));
        }
        Ok(true) => {}
        Err(refusal) => return Ok(Err(refusal)),
    }
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(Ok(()))
}

/// Converts an error of opening the file to one that says what to do.
fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
    use ErrorCode::{CannotOpen, NotADatabase, PermissionDenied, ReadOnly};
    let file = path.display();
    match error.sqlite_error_code() {
        Some(CannotOpen | PermissionDenied | ReadOnly) => StoreError::Unavailable(format!(
            "cannot open {file} ({error}). Its directory must exist, and both must be writable by this user: \
             SQLite creates two more files beside it. Fix this, or choose another path for the store"
        )),
        Some(NotADatabase) => StoreError::Corrupt(format!(
            "{file} is not a SQLite database. Move it away, or choose another path for the store"
        )),
        _ => match classify_error(error) {
            StoreError::Corrupt(text) => StoreError::Corrupt(format!("{file}: {text}")),
            StoreError::Unavailable(text) => StoreError::Unavailable(format!("{file}: {text}")),
            StoreError::Unknown(text) => StoreError::Unknown(format!("{file}: {text}")),
        },
    }
}

/// Fails if SQLite opened the file read-only, which it does by itself if it lacks the right to
/// write.
pub(super) fn refuse_read_only(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    match connection.is_readonly(MAIN_DB) {
        Ok(true) => Err(StoreError::Unavailable(format!(
            "{} can be read but not written by this user. Make it writable, or choose another path for the store",
            path.display()
        ))),
        Ok(false) => Ok(()),
        Err(error) => Err(explain(path, &error)),
    }
}
