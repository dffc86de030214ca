//! The SQLite store keeps the contract, and what a file adds to it.

mod audit;
mod commits;
mod common;
mod crash;
mod files;
mod logs;

use std::path::PathBuf;

use steadfast_session::Rules;
use steadfast_store::testing::Place;
use steadfast_store::testing::model::Model;
use steadfast_store::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

struct Sqlite(TempDir);

impl Sqlite {
    fn file(&self) -> PathBuf {
        self.0.path().join("sessions.db")
    }
}

impl Place for Sqlite {
    type Store = SqliteStore;
    const KEEPS: bool = true;
    const SHARES: bool = true;
    const BOUNDS_BYTES: bool = true;
    const BOUNDS_BYTES_OF_PRINCIPALS: bool = false;

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
