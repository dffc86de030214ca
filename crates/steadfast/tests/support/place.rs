//! Where the sessions of a test are kept.

use std::sync::Arc;

use steadfast::{Durability, StoreUrl};
use steadfast_session::Rules;
use steadfast_store::{MemoryStore, Store};
use tempfile::TempDir;

/// The kinds of places, as tests name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    Memory,
    Sqlite,
    Redis,
    Postgres,
}

/// A place that hosts are started on, one after the other or, unless it is memory, at once. Only
/// the hosts of one test use it.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Memory,
    /// A file in a folder that goes with the last who uses it.
    File(Arc<TempDir>),
    /// On the server of this test process, under a name of its own.
    At(StoreUrl),
}

impl Backing {
    /// A place that several processes share: of the kind that the variable names, if it can be had,
    /// and otherwise one that needs no server.
    #[allow(dead_code, reason = "not every test binary leaves the choice")]
    pub(crate) fn shared() -> Self {
        let named = match std::env::var("STEADFAST_TEST_STORE").as_deref() {
            Ok("redis") => Self::Redis,
            Ok("postgres") => Self::Postgres,
            Ok(other) => panic!("tests know no store that is called {other}"),
            Err(_) => Self::Sqlite,
        };
        if named.is_here() { named } else { Self::Sqlite }
    }

    /// Whether sessions outlive the process.
    pub(crate) fn keeps(self) -> bool {
        self != Self::Memory
    }

    /// Whether such a place can be had on this machine.
    pub(crate) fn is_here(self) -> bool {
        matches!(self, Self::Memory | Self::Sqlite) || address(self).is_some()
    }

    /// Returns a place that no host has used.
    pub(crate) fn place(self) -> Place {
        match self {
            Self::Memory => Place::Memory,
            Self::Sqlite => Place::File(Arc::new(TempDir::new().expect("a folder for the store"))),
            Self::Redis | Self::Postgres => {
                let address = address(self).expect("a server of this kind");
                Place::At(address.parse().expect("an address"))
            }
        }
    }
}

impl Place {
    pub(crate) fn url(&self) -> StoreUrl {
        match self {
            Self::Memory => StoreUrl::Memory,
            Self::File(folder) => StoreUrl::Sqlite(folder.path().join("sessions.db")),
            Self::At(url) => url.clone(),
        }
    }

    /// Files beside a SQLite file that say which processes live.
    #[allow(dead_code, reason = "not every test binary makes a running node look dead")]
    pub(crate) fn signs_of_life(&self) -> Vec<std::path::PathBuf> {
        let Self::File(folder) = self else { panic!("{self:?} has no such files") };
        let files = std::fs::read_dir(folder.path()).expect("the folder");
        let paths = files.map(|file| file.expect("a file").path());
        paths.filter(|path| path.to_string_lossy().contains("-node-")).collect()
    }

    pub(crate) fn open(&self, rules: Rules) -> Arc<dyn Store> {
        self.url().open(rules, Durability::default()).expect("the store opens")
    }

    /// Two stores with the same sessions.
    pub(crate) fn open_twice(&self, rules: Rules) -> [Arc<dyn Store>; 2] {
        if let Self::Memory = self {
            let store = MemoryStore::new(rules);
            let beside = store.handle_for_another_node();
            return [Arc::new(store), Arc::new(beside)];
        }
        [self.open(rules.clone()), self.open(rules)]
    }
}

/// A name on a server that nothing else has, if there is such a server and the tests are built for
/// it. Nodes are taken for dead sooner than in earnest.
pub(crate) fn address(backing: Backing) -> Option<String> {
    match backing {
        #[cfg(feature = "redis")]
        Backing::Redis => {
            use steadfast_store::testing::server::{RedisServer, fresh_name};
            let server = RedisServer::shared()?;
            Some(format!("{}?prefix={}&node_ttl=1000", server.url(), fresh_name()))
        }
        #[cfg(feature = "postgres")]
        Backing::Postgres => {
            use steadfast_store::testing::server::{PostgresServer, fresh_name};
            let server = PostgresServer::shared()?;
            Some(format!("{}?schema={}&node_ttl=1000", server.url(), fresh_name()))
        }
        _ => None,
    }
}

/// Makes a test of each named function, which takes a [`Backing`], on every store: in memory, on
/// SQLite, and on those servers that are built in and can be had here.
#[macro_export]
macro_rules! on_every_store {
    ($($name:ident),+ $(,)?) => {
        $crate::on_store!(on_memory: Memory, $($name),+);
        $crate::on_store!(on_sqlite: Sqlite, $($name),+);
        #[cfg(feature = "redis")]
        $crate::on_store!(on_redis: Redis, $($name),+);
        #[cfg(feature = "postgres")]
        $crate::on_store!(on_postgres: Postgres, $($name),+);
    };
}

/// Runs each test on every store that several processes can share.
#[allow(unused_macros, reason = "not every test binary has such tests")]
#[macro_export]
macro_rules! on_shared_stores {
    ($($name:ident),+ $(,)?) => {
        $crate::on_store!(on_sqlite: Sqlite, $($name),+);
        #[cfg(feature = "redis")]
        $crate::on_store!(on_redis: Redis, $($name),+);
        #[cfg(feature = "postgres")]
        $crate::on_store!(on_postgres: Postgres, $($name),+);
    };
}

#[macro_export]
macro_rules! on_store {
    ($module:ident: $backing:ident, $($name:ident),+) => {
        mod $module {
            use $crate::support::Backing;

            $(#[tokio::test]
            async fn $name() {
                if Backing::$backing.is_here() {
                    super::$name(Backing::$backing).await;
                }
            })+
        }
    };
}
