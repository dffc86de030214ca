//! The SQLite store passes the contract. Further tests cover what a file adds.

mod audit;
mod commits;
mod common;
mod crash;
mod files;
mod long_streams;

use std::path::PathBuf;

use steadfast_session::Rules;
use steadfast_store::testing::StoreFixture;
use steadfast_store::testing::model::Model;
use steadfast_store::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

struct Sqlite(TempDir);

impl Sqlite {
    fn file(&self) -> PathBuf {
        self.0.path().join("sessions.db")
    }
}

impl StoreFixture for Sqlite {
    type Store = SqliteStore;
    const PERSISTS: bool = true;
    const IS_SHARED: bool = true;
    const LIMITS_STORE_BYTES: bool = true;
    const LIMITS_PRINCIPAL_BYTES: bool = false;

    fn fresh() -> Self {
        Self(tempfile::tempdir().expect("a directory for the test"))
    }

    fn open(&self, rules: Rules) -> SqliteStore {
        SqliteStore::open(&self.file(), rules, SqliteOptions::default()).expect("the store opens")
    }

    fn audit(&self, model: &Model) -> Result<(), String> {
        audit::audit(&self.file(), model)
    }
}

steadfast_store::store_contract!(Sqlite);
