//! The schema: made by whoever comes first, and brought up to date by whoever is newer.
//!
//! All of it happens in one transaction under a lock of its own, so two processes that start at once do not meet, and one that
//! dies half way has done nothing. Tables change by steps; functions are replaced by those of this release with each step.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Transaction};

use super::failure::{NoLine, text};

/// The steps. The number of a version is that of the steps that lead to it: never change one, add one.
const STEPS: &[&str] = &[include_str!("sql/tables-1.sql"), include_str!("sql/step-2.sql")];

const FUNCTIONS: &[&str] = &[
    include_str!("sql/functions/helpers.sql"),
    include_str!("sql/functions/load.sql"),
    include_str!("sql/functions/commit.sql"),
    include_str!("sql/functions/payloads.sql"),
    include_str!("sql/functions/remove.sql"),
    include_str!("sql/functions/admit.sql"),
    include_str!("sql/functions/release.sql"),
    include_str!("sql/functions/forget.sql"),
    include_str!("sql/functions/count.sql"),
    include_str!("sql/functions/agenda.sql"),
    include_str!("sql/functions/nodes.sql"),
    include_str!("sql/functions/tell.sql"),
];

/// The first half of the name of the lock; the second is the schema.
const LOCK: i32 = 0x5354_4644;

/// Makes sure that the schema is that of this release.
pub(super) async fn prepare(client: &mut Client, schema: &str) -> Result<(), NoLine> {
    let no_line = |error: Error| NoLine::of(&error);
    match version(client, schema).await.map_err(no_line)? {
        Some(version) if version == STEPS.len() => return Ok(()),
        Some(version) => known(version, schema)?,
        None => {}
    }
    let transaction = client.transaction().await.map_err(no_line)?;
    let lock = "SELECT pg_advisory_xact_lock($1, hashtext($2))";
    transaction.execute(lock, &[&LOCK, &schema]).await.map_err(no_line)?;
    // Somebody else may have been here while we waited.
    let from = version_in(&transaction, schema).await.map_err(no_line)?.unwrap_or(0);
    known(from, schema)?;
    match migrate(&transaction, schema, from).await {
        Ok(()) => transaction.commit().await.map_err(no_line),
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            Err(NoLine::Refused(format!(
                "the schema {schema} is not up to date, and this user may not change that: {}. Let its owner run once, or \
             say `CREATE SCHEMA \"{schema}\" AUTHORIZATION` with the name of this user",
                text(&error)
            )))
        }
        Err(error) => Err(no_line(error)),
    }
}

fn known(version: usize, schema: &str) -> Result<(), NoLine> {
    if version <= STEPS.len() {
        return Ok(());
    }
    Err(NoLine::Refused(format!(
        "the schema {schema} has version {version}, made by a newer release; this one knows {} and leaves it alone",
        STEPS.len()
    )))
}

async fn version(client: &mut Client, schema: &str) -> Result<Option<usize>, Error> {
    let transaction = client.transaction().await?;
    let version = version_in(&transaction, schema).await?;
    transaction.rollback().await?;
    Ok(version)
}

/// `None` if there is no such schema yet, or nothing in it.
async fn version_in(transaction: &Transaction<'_>, schema: &str) -> Result<Option<usize>, Error> {
    let is_there = "SELECT FROM pg_class, pg_namespace WHERE relnamespace = pg_namespace.oid AND nspname = $1 \
                    AND relname = 'format'";
    if transaction.query_opt(is_there, &[&schema]).await?.is_none() {
        return Ok(None);
    }
    let row = transaction.query_opt(&format!("SELECT version FROM \"{schema}\".format"), &[]).await?;
    let version: Option<i32> = row.map(|row| row.try_get(0)).transpose()?;
    // A number that makes no sense is none that this release knows.
    Ok(version.map(|version| usize::try_from(version).unwrap_or(usize::MAX)))
}

async fn migrate(transaction: &Transaction<'_>, schema: &str, from: usize) -> Result<(), Error> {
    if from == STEPS.len() {
        return Ok(());
    }
    let has_schema = "SELECT FROM pg_namespace WHERE nspname = $1";
    // Where it is there already, nobody has to be allowed to create it.
    if transaction.query_opt(has_schema, &[&schema]).await?.is_none() {
        transaction.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await?;
    }
    transaction.batch_execute(&format!("SET LOCAL search_path TO \"{schema}\"")).await?;
    for step in STEPS.iter().skip(from).chain(FUNCTIONS) {
        transaction.batch_execute(step).await?;
    }
    let version = i32::try_from(STEPS.len()).unwrap_or(i32::MAX);
    transaction.batch_execute("DELETE FROM format").await?;
    transaction.execute("INSERT INTO format VALUES ($1)", &[&version]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fingerprint of each step, and of all functions as of the version that it leads to.
    const PINNED: &[(u64, u64)] =
        &[(0x1482_d9e6_58d4_24e6, 0x6a6f_57bd_d191_bc36), (0x4f3b_8fc9_4246_1fc3, 0x0315_c840_55d4_0856)];

    /// FNV-1a: nobody tries to deceive this test.
    fn fingerprint(texts: &[&str]) -> u64 {
        let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    #[test]
    fn a_step_never_changes() {
        let steps: Vec<u64> = STEPS.iter().map(|step| fingerprint(&[step])).collect();
        let pinned: Vec<u64> = PINNED.iter().map(|(step, _)| *step).collect();
        assert_eq!(
            steps, pinned,
            "databases that have done a step do not do it again: leave it as it was, add another one to `STEPS`, and a row to \
             `PINNED` ({steps:#x?})"
        );
    }

    #[test]
    fn functions_change_with_a_step() {
        let functions = fingerprint(FUNCTIONS);
        let (_, pinned) = PINNED[PINNED.len() - 1];
        assert_eq!(
            functions, pinned,
            "databases get other functions with a new version only: add a step to `STEPS` (a comment will do if no table \
             changes), a row to `PINNED` ({functions:#x}), and the dump of the version before to `tests/postgres/golden`"
        );
    }
}
