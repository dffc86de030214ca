//! Creates the schema, or migrates it to the version of this release.
//!
//! A migration runs in one transaction under an advisory lock. So two processes that start at the
//! same time do not collide, and a process that dies half way has changed nothing. Each migration
//! changes the tables. After the migrations, all functions are replaced by those of this release.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Transaction};

use super::errors::{ConnectError, text};

/// The migrations. The version of a schema is the number of migrations that were applied. Never
/// change a migration; add one.
const MIGRATIONS: &[&str] = &[
    include_str!("sql/migration-1.sql"),
    include_str!("sql/migration-2.sql"),
    include_str!("sql/migration-3.sql"),
];

/// The functions, replaced with each migration.
const FUNCTIONS: &[&str] = &[
    include_str!("sql/functions/helpers.sql"),
    include_str!("sql/functions/load.sql"),
    include_str!("sql/functions/commit.sql"),
    include_str!("sql/functions/payloads.sql"),
    include_str!("sql/functions/remove.sql"),
    include_str!("sql/functions/admit.sql"),
    include_str!("sql/functions/release.sql"),
    include_str!("sql/functions/forget.sql"),
    include_str!("sql/functions/count_sessions.sql"),
    include_str!("sql/functions/eviction_sample.sql"),
    include_str!("sql/functions/sweep_schedule.sql"),
    include_str!("sql/functions/nodes.sql"),
    include_str!("sql/functions/send_hint.sql"),
];

/// The first half of the key of the advisory lock. The second half is a hash of the schema name.
const LOCK_KEY: i32 = 0x5354_4644;

/// Ensures that the schema has the version of this release. Fails with [`ConnectError::Refused`] if
/// a newer release has migrated the schema, or if this user lacks the rights to migrate it.
pub(super) async fn prepare(client: &mut Client, schema: &str) -> Result<(), ConnectError> {
    let connect_error = |error: Error| ConnectError::of(&error);
    match version(client, schema).await.map_err(connect_error)? {
        Some(version) if version == MIGRATIONS.len() => return Ok(()),
        Some(version) => check_version_is_known(version, schema)?,
        None => {}
    }
    let transaction = client.transaction().await.map_err(connect_error)?;
    let lock = "SELECT pg_advisory_xact_lock($1, hashtext($2))";
    transaction.execute(lock, &[&LOCK_KEY, &schema]).await.map_err(connect_error)?;
    // Another process may have migrated the schema while this one waited for the lock.
    let from = version_in(&transaction, schema).await.map_err(connect_error)?.unwrap_or(0);
    check_version_is_known(from, schema)?;
    match migrate(&transaction, schema, from).await {
        Ok(()) => transaction.commit().await.map_err(connect_error),
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            Err(ConnectError::Refused(format!(
                "the schema {schema} must be created or migrated, and this user lacks the rights: {}. Start this release once \
             as the owner of the schema, or run `CREATE SCHEMA \"{schema}\" AUTHORIZATION` with the name of this user",
                text(&error)
            )))
        }
        Err(error) => Err(connect_error(error)),
    }
}

/// Fails if a newer release has migrated the schema.
fn check_version_is_known(version: usize, schema: &str) -> Result<(), ConnectError> {
    if version <= MIGRATIONS.len() {
        return Ok(());
    }
    Err(ConnectError::Refused(format!(
        "the schema {schema} has version {version}, made by a newer release; this release supports versions up to {}. Use the \
         newer release, or another schema",
        MIGRATIONS.len()
    )))
}

async fn version(client: &mut Client, schema: &str) -> Result<Option<usize>, Error> {
    let transaction = client.transaction().await?;
    let version = version_in(&transaction, schema).await?;
    transaction.rollback().await?;
    Ok(version)
}

/// Returns the version of the schema. Returns `None` if the schema does not exist or is empty.
async fn version_in(transaction: &Transaction<'_>, schema: &str) -> Result<Option<usize>, Error> {
    let is_there = "SELECT FROM pg_class, pg_namespace WHERE relnamespace = pg_namespace.oid AND nspname = $1 \
                    AND relname = 'format'";
    if transaction.query_opt(is_there, &[&schema]).await?.is_none() {
        return Ok(None);
    }
    let row = transaction.query_opt(&format!("SELECT version FROM \"{schema}\".format"), &[]).await?;
    let version: Option<i32> = row.map(|row| row.try_get(0)).transpose()?;
    // A negative number is invalid, so it counts as a version that this release does not know.
    Ok(version.map(|version| usize::try_from(version).unwrap_or(usize::MAX)))
}

async fn migrate(transaction: &Transaction<'_>, schema: &str, from: usize) -> Result<(), Error> {
    if from == MIGRATIONS.len() {
        return Ok(());
    }
    let has_schema = "SELECT FROM pg_namespace WHERE nspname = $1";
    // If the schema exists, the user needs no right to create schemas.
    if transaction.query_opt(has_schema, &[&schema]).await?.is_none() {
        transaction.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await?;
    }
    transaction.batch_execute(&format!("SET LOCAL search_path TO \"{schema}\"")).await?;
    for sql in MIGRATIONS.iter().skip(from).chain(FUNCTIONS) {
        transaction.batch_execute(sql).await?;
    }
    let version = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    transaction.batch_execute("DELETE FROM format").await?;
    transaction.execute("INSERT INTO format VALUES ($1)", &[&version]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each migration: its fingerprint, and that of all functions as of its version.
    const PINNED: &[(u64, u64)] = &[
        (0xcb9f_1e40_6210_e206, 0x0768_f77b_daa9_6554),
        (0xaf63_bd4c_8601_b7df, 0x0b03_3378_59f7_540d),
        (0xf929_d7cd_9732_2082, 0x19c5_5573_1119_101c),
    ];

    /// Returns a hash (FNV-1a) of SQL texts. Lines that are comments do not count: a change of a
    /// comment needs no migration.
    fn fingerprint(texts: &[&str]) -> u64 {
        let is_code = |line: &&str| !line.trim_start().starts_with("--");
        let code =
            |text: &str| text.lines().filter(is_code).fold(String::new(), |code, line| code + line + "\n");
        let bytes = texts.iter().flat_map(|text| code(text).into_bytes().into_iter().chain([0]));
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    #[test]
    fn a_migration_never_changes() {
        let migrations: Vec<u64> = MIGRATIONS.iter().map(|migration| fingerprint(&[migration])).collect();
        let pinned: Vec<u64> = PINNED.iter().map(|(migration, _)| *migration).collect();
        assert_eq!(
            migrations, pinned,
            "a database does not run a migration again: leave the migration as it was, add another one to `MIGRATIONS`, and a \
             row to `PINNED` ({migrations:#x?})"
        );
    }

    #[test]
    fn functions_change_only_with_a_migration() {
        let functions = fingerprint(FUNCTIONS);
        let (_, pinned) = PINNED[PINNED.len() - 1];
        assert_eq!(
            functions, pinned,
            "a database gets new functions only with a new version: add a migration to `MIGRATIONS` (with just a comment if no \
             table changes), a row to `PINNED` ({functions:#x}), and a dump of the previous version to `tests/postgres/dumps`"
        );
    }
}
