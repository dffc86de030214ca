//! The size of an idle session in each database, with a store and without gateway.

use std::thread;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use steadfast_session::command::{Append, Attach, Begin, Begun, Finish, Position, Target};
use steadfast_session::{Class, Facts, NodeId, Principal, Rules, SessionId, StreamNo, Time};
use steadfast_store::testing::server::{PostgresServer, RedisServer, fresh_name};
use steadfast_store::{PostgresOptions, PostgresStore, RedisOptions, RedisStore, Store, StoreExt as _};
use steadfast_wire::Revision;

use super::redis::RedisConnection;
use crate::{Error, load};

const NOW: Time = Time(1_000_000);
/// A node number that is as long as random ones.
const ONE: NodeId = NodeId(u64::MAX / 2);
const OTHER: NodeId = NodeId(u64::MAX / 3);
/// Sessions that are opened before the count starts, so that the server has made its one-time
/// allocations: buffers, scripts, lists. Redis stores a list of more than 128 entries differently.
const UNCOUNTED: u32 = 200;
/// Sessions with calls. The updates of these calls are counted.
const BUSY: u32 = 50;
/// PostgreSQL publishes the counters of a connection some time after its end.
const STATISTICS: Duration = Duration::from_secs(2);

/// Returns the size of a session in Redis, and by how much it grows after a second node has served
/// it, in bytes of `used_memory`.
#[derive(Debug)]
pub(super) struct InRedis {
    idle: u64,
    other_node: u64,
}

pub(super) fn redis(server: &RedisServer, sessions: u32) -> Result<InRedis, Error> {
    let mut redis = RedisConnection::open(server.port())?;
    let quiet =
        RedisOptions { prefix: fresh_name(), receives_hints: false, ..RedisOptions::new(server.url()) };
    let (one, other) =
        (RedisStore::open(Rules::default(), quiet.clone())?, RedisStore::open(Rules::default(), quiet)?);
    load::runtime(1)?.block_on(async {
        one.join(ONE, NOW).await?;
        other.join(OTHER, NOW).await?;
        for n in 0..UNCOUNTED {
            one.open(facts(n)).await?;
        }
        let all = UNCOUNTED..UNCOUNTED + sessions;
        let before = redis.used_memory()?;
        for n in all.clone() {
            one.open(facts(n)).await?;
        }
        let idle = redis.used_memory()?.saturating_sub(before) / u64::from(sessions);

        let first = Position::After { stream: StreamNo::FIRST_STANDALONE, seq: 0 };
        for n in 0..UNCOUNTED + sessions {
            one.run(facts(n).id, Attach { at: Position::Standalone, node: ONE }, NOW).await?;
            // A session stores the names of its last commits. These calls fill that list.
            for _ in 0..5 {
                one.run(facts(n).id, Attach { at: first, node: ONE }, NOW).await?;
            }
        }
        for n in 0..UNCOUNTED {
            other.run(facts(n).id, Attach { at: first, node: OTHER }, NOW).await?;
        }
        let before = redis.used_memory()?;
        for n in all {
            other.run(facts(n).id, Attach { at: first, node: OTHER }, NOW).await?;
        }
        let other_node = redis.used_memory()?.saturating_sub(before) / u64::from(sessions);
        Ok(InRedis { idle, other_node })
    })
}

impl InRedis {
    pub(super) fn line(&self) -> String {
        let Self { idle, other_node } = self;
        format!("an idle session in Redis, by used_memory: {idle} bytes; a second node adds {other_node}")
    }

    pub(super) fn json(&self) -> Value {
        json!({ "server": "redis", "idle_used_memory": self.idle, "second_node_used_memory": self.other_node })
    }
}

/// Returns the size of a session in PostgreSQL with all tables and indexes, and how many per cent
/// of the updates touch no index (HOT).
#[derive(Debug)]
pub(super) struct InPostgres {
    idle: u64,
    hot: String,
}

pub(super) fn postgres(server: &PostgresServer, sessions: u32) -> Result<InPostgres, Error> {
    let schema = fresh_name();
    let url = format!("{}?schema={schema}", server.url());
    let options = PostgresOptions::parse(&url).ok_or("this is no address of PostgreSQL")?;
    let store = PostgresStore::open(Rules::default(), options)?;
    let size = || -> Result<u64, Error> {
        let sum = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r'";
        Ok(server.ask(&format!("{sum} AND relnamespace = '\"{schema}\"'::regnamespace")).parse()?)
    };
    let idle = load::runtime(1)?.block_on(async {
        store.join(ONE, NOW).await?;
        let before = size()?;
        for n in 0..sessions {
            store.open(facts(n)).await?;
        }
        let idle = (size()? - before) / u64::from(sessions);
        for n in 0..BUSY.min(sessions) {
            for attempt in 1..6 {
                work(&store, facts(n).id, attempt).await?;
            }
        }
        Ok::<_, Error>(idle)
    })?;
    drop(store);
    thread::sleep(STATISTICS);
    let hot = server.ask(&format!(
        "SELECT sum(n_tup_hot_upd) * 100 / sum(n_tup_upd) FROM pg_stat_user_tables \
         WHERE schemaname = '{schema}' AND relname = 'session'"
    ));
    Ok(InPostgres { idle, hot })
}

impl InPostgres {
    pub(super) fn line(&self) -> String {
        let hot: f64 = self.hot.parse().unwrap_or_default();
        let idle = self.idle;
        format!(
            "an idle session in PostgreSQL: {idle} bytes with all indexes; {hot:.0} % of updates touch no index"
        )
    }

    pub(super) fn json(&self) -> Value {
        let hot: f64 = self.hot.parse().unwrap_or_default();
        json!({ "server": "postgres", "idle_session_bytes": self.idle, "hot_updates_percent": hot })
    }
}

/// Makes a call with one message before its response.
async fn work(store: &PostgresStore, session: SessionId, attempt: u64) -> Result<(), Error> {
    let begin = Begin::local(ONE, attempt, vec![attempt.cast_signed().into()]);
    let Begun::Begun { first, .. } = store.run(session, begin, NOW).await? else {
        return Err("the store has not begun a call".into());
    };
    let payload = Bytes::from_static(b"hello");
    let message = Append { target: Target::Standalone, class: Class::Notification, payload, fence: None };
    store.run(session, message, NOW).await?;
    store.run(session, Finish { call: first, payload: "long ".repeat(300).into() }, NOW).await?;
    Ok(())
}

/// Opens a session with the usual content of `initialize`, and an id that is distributed like a
/// random one.
fn facts(n: u32) -> Facts {
    const INITIALIZE: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":"example-client","title":"Example Client","version":"1.2.3"}}"#;
    let mut id = [0; SessionId::BYTES];
    id[..4].copy_from_slice(&n.wrapping_mul(2_654_435_761).to_be_bytes());
    Facts {
        id: SessionId::from_random(id),
        principal: Principal::new("client"),
        revision: Revision::LATEST_LEGACY,
        initialize: Bytes::from_static(INITIALIZE.as_bytes()),
        opened_at: NOW,
    }
}
