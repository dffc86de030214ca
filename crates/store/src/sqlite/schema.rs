//! Opening the file: what it must be, and how it is used.

#[cfg(unix)]
use std::fs::OpenOptions;
use std::path::Path;
#[cfg(unix)]
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, MAIN_DB, OpenFlags, TransactionBehavior};

use super::failure::not_done;
use super::{Durability, SqliteOptions};
use crate::error::StoreError;

const SCHEMA: &str = include_str!("schema.sql");

/// The version of the schema, kept as `user_version`. A file with another one is refused.
const VERSION: i64 = 4;

/// Marks the file as ours ("stdf"), kept as `application_id`: no other program's database is ever written to.
const APPLICATION: i64 = 0x7374_6466;

/// Pages in the write-ahead log before they are moved into the database, 32 MiB. In between, a page that many
/// commits change is moved once.
const CHECKPOINT_PAGES: i64 = 8192;

/// What the write-ahead log shrinks to after it had to grow.
const LOG_BYTES: i64 = 64 << 20;

/// Memory for pages, in KiB, of the writer and of a reader.
const WRITER_CACHE_KIB: i64 = 4 << 10;
const READER_CACHE_KIB: i64 = 2 << 10;

/// Opens the connection that writes, and makes the tables if the file is new.
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

/// Creates the file, readable by its owner alone, unless it exists. SQLite gives the files beside
/// it (`-wal`, `-shm`) the mode of the database.
#[cfg(unix)]
fn create_private(path: &Path) {
    use std::os::unix::fs::OpenOptionsExt as _;
    // When a process closes a file, it loses all its locks on it, SQLite's own included. So an
    // existing file is never opened here, and no two threads create one at the same time.
    static CREATING: Mutex<()> = Mutex::new(());
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    // Any error comes back when SQLite opens the file, and is explained there.
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
}

#[cfg(not(unix))]
fn create_private(_path: &Path) {}

/// Opens a connection that reads. The file exists and is ours by now.
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
    // Before anything is written: somebody else's file must stay as it is. In one look, because another process
    // may be making the tables right now.
    let look = connection.transaction()?;
    if let Err(refusal) = inspect(&look)? {
        return Ok(Err(refusal));
    }
    drop(look);
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    let synchronous = match options.durability {
        // The write-ahead log is in the kernel's hands with each commit, so nothing is lost with the process.
        // It is forced to the disk only before a checkpoint: a power cut may lose the last commits but never
        // damages the file, which is why this is not OFF.
        Durability::Process => "NORMAL",
        Durability::Power => "FULL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // No mmap: an I/O error would be a SIGBUS that ends the process instead of an error for one command.
    connection.pragma_update_and_check(None, "mmap_size", 0, |_| Ok(()))?;
    create(connection)
}

/// Whether the file is new or ours, and not from the future.
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
    // Looked at again: another process may have been first.
    match inspect(&transaction)? {
        Ok(false) => {
            // A file that was cut off fails here and not in the middle of somebody's call.
            transaction.query_row("SELECT sessions, bytes FROM total", [], |_| Ok(()))?;
            return Ok(Ok(()));
        }
        Ok(true) => {}
        Err(refusal) => return Ok(Err(refusal)),
    }
    transaction.execute_batch(SCHEMA)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(Ok(()))
}

/// Says what to do about a file that cannot be opened.
fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{CannotOpen, NotADatabase, PermissionDenied, ReadOnly};
    let file = path.display();
    match error.sqlite_error_code() {
        Some(CannotOpen | PermissionDenied | ReadOnly) => StoreError::Unavailable(format!(
            "cannot open {file} ({error}). Its directory must exist, and both must be writable by this user: \
             SQLite keeps two more files beside it. Mend that, or put the store elsewhere"
        )),
        Some(NotADatabase) => StoreError::Corrupt(format!(
            "{file} is not a SQLite database. Move it away, or put the store elsewhere"
        )),
        _ => match not_done(error) {
            StoreError::Corrupt(text) => StoreError::Corrupt(format!("{file}: {text}")),
            StoreError::Unavailable(text) => StoreError::Unavailable(format!("{file}: {text}")),
            StoreError::Unknown(text) => StoreError::Unknown(format!("{file}: {text}")),
        },
    }
}

/// Whether the file was opened for reading only, as SQLite does by itself when it may not write.
pub(super) fn refuse_read_only(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    match connection.is_readonly(MAIN_DB) {
        Ok(true) => Err(StoreError::Unavailable(format!(
            "{} can be read but not written by this user. Make it writable, or put the store elsewhere",
            path.display()
        ))),
        Ok(false) => Ok(()),
        Err(error) => Err(explain(path, &error)),
    }
}
