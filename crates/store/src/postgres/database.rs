//! [`PostgresDatabase`]: the [`Database`] operations in PostgreSQL. Each operation calls a function
//! of the schema, see `sql/functions/`.
//!
//! Some functions have other names than the operations, because renaming a function would need a
//! new version of the schema: `beat` records heartbeats, `present` records the presence of a node,
//! `strike` delists a node, `tell` sends a hint, `release` marks a session as closed, and `forget`
//! removes a session from the indexes.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use steadfast_session::{Class, Limit, NodeId, Principal, SessionId, StreamNo, Time};
use tokio::sync::mpsc;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::PostgresOptions;
use super::connection::Connector;
use super::errors::ConnectError;
use super::hint_listener::HintListener;
use super::options::is_valid_schema_name;
use super::pool::{Params, Pool};
use crate::error::StoreError;
use crate::remote::META;
use crate::remote::database::{
    Admission, AdmissionRequest, ChangeHint, CommitOutcome, CommitRequest, Database, EventKey, EvictionRows,
    IndexKey, LoadOutcome, NewVersion, NodeExit, OpenSessionCounts, Payloads, Presence, Snapshot,
    StoreResult, UsageSample, VersionStamp,
};
use crate::store::EvictionSample;

/// How many sessions the estimate of the store's bytes is based on.
const SAMPLE_SIZE: i64 = 256;

pub(super) struct PostgresDatabase {
    pool: Pool,
    /// One connection for heartbeats, so that they do not wait for other requests.
    heartbeat_pool: Pool,
    hint_listener: Rc<HintListener>,
    schema: String,
    node_ttl: i64,
}

impl PostgresDatabase {
    /// Opens the pools, migrates the schema, and starts to listen for hints. Fails if the server
    /// refuses that, but not if it cannot be reached.
    pub(super) async fn open(
        options: &PostgresOptions,
        hints: mpsc::Sender<ChangeHint>,
    ) -> StoreResult<Self> {
        if !is_valid_schema_name(&options.schema) {
            let why = "a schema name consists of up to 40 letters, digits, `_` and `-`, and must not begin with `pg_`";
            return Err(StoreError::Unavailable(why.into()));
        }
        let connector = Connector::new(options)?;
        let pool = Pool::new(connector.clone(), options);
        match pool.open_first().await {
            Ok(()) => {}
            // The store opens nevertheless. Operations fail until the server can be reached.
            Err(ConnectError::Unreachable(why)) => {
                tracing::warn!(why, "cannot reach PostgreSQL; the store retries when it is used");
            }
            Err(refused @ ConnectError::Refused(_)) => return Err(refused.into()),
        }
        let for_heartbeats = options.for_heartbeats();
        Ok(Self {
            pool,
            heartbeat_pool: Pool::new(Connector::new(&for_heartbeats)?, &for_heartbeats),
            hint_listener: HintListener::start(connector, options.response_timeout, hints),
            schema: options.schema.clone(),
            node_ttl: millis(options.node_ttl),
        })
    }

    /// Calls a function that returns a row of the SQL type `found`.
    async fn look_up(&self, function: &'static str, params: Params<'_>) -> StoreResult<SessionLookup> {
        parse_lookup(&self.single_row(function, params).await?)
    }

    async fn single_row(&self, function: &'static str, params: Params<'_>) -> StoreResult<Row> {
        let mut rows = self.pool.call(function, params).await?;
        match (rows.pop(), rows.is_empty()) {
            (Some(row), true) => Ok(row),
            _ => Err(StoreError::Corrupt(format!("the function {function} did not return exactly one row"))),
        }
    }

    fn channel(&self, node: NodeId) -> String {
        format!("{}:{:016x}", self.schema, node.0)
    }
}

impl Database for PostgresDatabase {
    async fn load(&self, session: SessionId, known: &VersionStamp) -> StoreResult<LoadOutcome> {
        Ok(match self.look_up("load", &[&id(&session), &stamp_bytes(known)]).await? {
            SessionLookup::Missing => LoadOutcome::Missing,
            SessionLookup::Unchanged(_) => LoadOutcome::Unchanged,
            SessionLookup::Changed(snapshot) => LoadOutcome::Changed(snapshot),
        })
    }

    async fn commit(&self, session: SessionId, request: &CommitRequest<'_>) -> StoreResult<CommitOutcome> {
        let nothing = NewVersion::default();
        let next = request.new_version.unwrap_or(&nothing);
        let stamp = request.new_version.map(|next| stamp_bytes(&next.stamp));
        let meta = next.put_rows.iter().find(|(name, _)| name == META).map(|(_, row)| &row[..]);
        let put = || next.put_rows.iter().filter(|(name, _)| name != META);
        let names: Vec<&[u8]> = put().map(|(name, _)| &name[..]).collect();
        let parts: Vec<&[u8]> = put().map(|(_, row)| &row[..]).collect();
        let deleted: Vec<&[u8]> = next.delete_rows.iter().map(|name| &name[..]).collect();
        let (streams, seqs) = positions(next.append_events.iter().map(|(key, _)| key));
        let sizes: Vec<i32> = next.append_events.iter().map(|(key, _)| key.size.cast_signed()).collect();
        let classes: Vec<i16> =
            next.append_events.iter().map(|(key, _)| i16::from(key.class.code())).collect();
        let payloads: Vec<&[u8]> = next.append_events.iter().map(|(_, payload)| &payload[..]).collect();
        let (deleted_streams, deleted_seqs) = positions(next.delete_events.iter());
        let params: Params<'_> = &[
            &id(&session),
            &stamp_bytes(request.expected),
            &stamp,
            &meta,
            &names,
            &parts,
            &deleted,
            &streams,
            &seqs,
            &sizes,
            &classes,
            &payloads,
            &deleted_streams,
            &deleted_seqs,
        ];
        Ok(match self.look_up("commit", params).await? {
            SessionLookup::Missing => CommitOutcome::Conflict { current: None, may_be_own_commit: false },
            SessionLookup::Unchanged(_) => CommitOutcome::Committed,
            SessionLookup::Changed(snapshot) => {
                CommitOutcome::Conflict { current: Some(snapshot), may_be_own_commit: false }
            }
        })
    }

    async fn read_payloads(
        &self,
        session: SessionId,
        expected: &VersionStamp,
        events: &[EventKey],
    ) -> StoreResult<Payloads> {
        let (streams, seqs) = positions(events.iter());
        let params: Params<'_> = &[&id(&session), &stamp_bytes(expected), &streams, &seqs];
        Ok(match self.look_up("payloads", params).await? {
            SessionLookup::Missing => Payloads::Missing,
            SessionLookup::Unchanged(payloads) => Payloads::Read(payloads),
            SessionLookup::Changed(snapshot) => Payloads::Changed(snapshot),
        })
    }

    async fn remove(&self, session: SessionId, expected: &VersionStamp) -> StoreResult<bool> {
        cell(&self.single_row("remove", &[&id(&session), &stamp_bytes(expected)]).await?, 0)
    }

    async fn admit(&self, request: &AdmissionRequest<'_>) -> StoreResult<Admission> {
        let IndexKey { session, principal } = request.index_key;
        let params: Params<'_> = &[
            &id(session),
            &principal.as_str().as_bytes(),
            &saturating_i64(request.due.0),
            &saturating_i64(request.sessions),
            &saturating_i64(request.sessions_per_principal),
        ];
        match cell::<i32>(&self.single_row("admit", params).await?, 0)? {
            1 => Ok(Admission::Admitted),
            2 => Ok(Admission::AlreadyCounted),
            3 => Ok(Admission::OverLimit(Limit::Sessions)),
            4 => Ok(Admission::OverLimit(Limit::SessionsPerPrincipal)),
            _ => Err(unreadable()),
        }
    }

    /// Counts all sessions only. A function that also returns the count of a principal would need a
    /// new version of the schema, and this count is only a hint.
    async fn count_open_sessions(&self, _principal: &Principal) -> StoreResult<OpenSessionCounts> {
        let row = self.single_row("count_sessions", &[&0_i64]).await?;
        Ok(OpenSessionCounts { total: cell::<i64>(&row, 1)?.cast_unsigned(), of_principal: None })
    }

    async fn mark_closed(&self, index_key: &IndexKey) -> StoreResult<()> {
        self.pool.call("release", &[&id(&index_key.session)]).await.map(drop)
    }

    async fn remove_from_indexes(&self, index_key: &IndexKey, present: &[NodeId]) -> StoreResult<()> {
        self.pool.call("forget", &[&id(&index_key.session), &numbers(present)]).await.map(drop)
    }

    async fn eviction_rows(
        &self,
        requester: &Principal,
        of: Option<&Principal>,
        from: SessionId,
    ) -> StoreResult<EvictionRows> {
        let params: Params<'_> = &[
            &requester.as_str().as_bytes(),
            &of.map(|principal| principal.as_str().as_bytes()),
            &id(&from),
            &saturating_i64(EvictionSample::SIZE as u64),
            &saturating_i64(EvictionSample::MAX_PRINCIPALS),
        ];
        let row = self.single_row("eviction_sample", params).await?;
        let count = |at| cell::<i64>(&row, at).map(|number| number.max(0).cast_unsigned());
        let principal =
            |bytes: &[u8]| std::str::from_utf8(bytes).map(Principal::new).map_err(|_| unreadable());
        let largest = match cell::<Option<&[u8]>>(&row, 3)? {
            Some(largest) => Some((principal(largest)?, count(4)?)),
            None => None,
        };
        let mut sessions = Vec::new();
        let (ids, principals) = (list::<&[u8]>(&row, 5)?, list::<&[u8]>(&row, 6)?);
        let (held, metas) = (list::<i64>(&row, 7)?, list::<&[u8]>(&row, 8)?);
        for (((id, of), held), meta) in ids.into_iter().zip(principals).zip(held).zip(metas) {
            let index_key = IndexKey { session: session_of(id)?, principal: principal(of)? };
            sessions.push((index_key, held.max(0).cast_unsigned(), Bytes::copy_from_slice(meta)));
        }
        Ok(EvictionRows { sessions, open: count(0)?, principals: count(1)?, own: count(2)?, largest })
    }

    async fn sample_usage(&self) -> StoreResult<UsageSample> {
        let row = self.single_row("count_sessions", &[&SAMPLE_SIZE]).await?;
        let number = |at| cell::<i64>(&row, at).map(|number| number.max(0).cast_unsigned());
        let meta_rows = list::<&[u8]>(&row, 2)?.into_iter().map(Bytes::copy_from_slice).collect();
        Ok(UsageSample { stored: number(0)?, open: number(1)?, meta_rows })
    }

    async fn ping(&self) -> StoreResult<()> {
        // The node does not matter. The call shows that the schema exists and that its functions
        // can be called.
        self.pool.call("alive", &[&0_i64, &self.node_ttl]).await.map(drop)
    }

    async fn schedule(&self, index_key: &IndexKey, at: Time) -> StoreResult<()> {
        self.pool.call("schedule", &[&id(&index_key.session), &saturating_i64(at.0)]).await.map(drop)
    }

    async fn reschedule(&self, index_key: &IndexKey, scheduled: Time, at: Time) -> StoreResult<()> {
        let params: Params<'_> =
            &[&id(&index_key.session), &saturating_i64(scheduled.0), &saturating_i64(at.0)];
        self.pool.call("reschedule", params).await.map(drop)
    }

    async fn due_sessions(&self, now: Time, batch: usize) -> StoreResult<Vec<(IndexKey, Time)>> {
        let batch = i64::try_from(batch).unwrap_or(i64::MAX);
        let rows = self.pool.call("due", &[&saturating_i64(now.0), &batch]).await?;
        rows.iter().map(due_session).collect()
    }

    async fn send_heartbeat(&self, nodes: &[NodeId]) -> StoreResult<()> {
        self.heartbeat_pool.call("beat", &[&numbers(nodes), &self.node_ttl]).await.map(drop)
    }

    async fn is_alive(&self, node: NodeId) -> StoreResult<bool> {
        cell(&self.single_row("alive", &[&node.0.cast_signed(), &self.node_ttl]).await?, 0)
    }

    async fn dead_nodes(&self) -> StoreResult<Vec<NodeId>> {
        let rows = self.pool.call("dead", &[&self.node_ttl]).await?;
        let dead = rows.iter().map(|row| Ok(NodeId(cell::<i64>(row, 0)?.cast_unsigned())));
        let mut dead = dead.collect::<StoreResult<Vec<NodeId>>>()?;
        // Sorted here because the database has no unsigned numbers.
        dead.sort_unstable();
        Ok(dead)
    }

    async fn record_presence(&self, presence: Presence) -> StoreResult<()> {
        let Presence { session, node, version, is_local } = presence;
        let params: Params<'_> = &[&id(&session), &node.0.cast_signed(), &saturating_i64(version), &is_local];
        self.pool.call("present", params).await.map(drop)
    }

    async fn sessions_of_node(&self, node: NodeId, batch: usize) -> StoreResult<Vec<SessionId>> {
        let batch = i64::try_from(batch).unwrap_or(i64::MAX);
        let rows = self.pool.call("sessions_of", &[&node.0.cast_signed(), &batch]).await?;
        rows.iter().map(|row| session_of(cell(row, 0)?)).collect()
    }

    async fn delist_node(
        &self,
        node: NodeId,
        released: &[(SessionId, u64)],
        exit: NodeExit,
    ) -> StoreResult<bool> {
        let sessions: Vec<&[u8]> = released.iter().map(|(session, _)| id(session)).collect();
        let versions: Vec<i64> = released.iter().map(|(_, version)| saturating_i64(*version)).collect();
        let params: Params<'_> =
            &[&node.0.cast_signed(), &sessions, &versions, &(exit == NodeExit::Leaving), &self.node_ttl];
        cell(&self.single_row("strike", params).await?, 0)
    }

    async fn send_hint(&self, nodes: &[NodeId], hint: ChangeHint) -> StoreResult<()> {
        let channels: Vec<String> = nodes.iter().map(|node| self.channel(*node)).collect();
        self.pool.call("tell", &[&channels, &hint.text()]).await.map(drop)
    }

    async fn subscribe_node(&self, node: NodeId) -> StoreResult<()> {
        self.hint_listener.listen(self.channel(node)).await
    }

    async fn unsubscribe_node(&self, node: NodeId) -> StoreResult<()> {
        self.hint_listener.unlisten(&self.channel(node)).await
    }
}

/// What a function found in place of a session.
enum SessionLookup {
    Missing,
    /// The session has the expected version. Contains the payloads, if the request asked for some.
    Unchanged(Vec<Option<Bytes>>),
    Changed(Snapshot),
}

/// Reads a row of the SQL type `found`.
fn parse_lookup(row: &Row) -> StoreResult<SessionLookup> {
    match cell::<i32>(row, 0)? {
        0 => Ok(SessionLookup::Missing),
        1 => {
            let payloads = list::<Option<&[u8]>>(row, 9)?.into_iter();
            Ok(SessionLookup::Unchanged(
                payloads.map(|payload| payload.map(Bytes::copy_from_slice)).collect(),
            ))
        }
        2 => snapshot(row).map(SessionLookup::Changed),
        _ => Err(unreadable()),
    }
}

fn snapshot(row: &Row) -> StoreResult<Snapshot> {
    let stamp = stamp_of(cell(row, 1)?).ok_or_else(unreadable)?;
    let names = list::<&[u8]>(row, 3)?.into_iter().map(Bytes::copy_from_slice);
    let mut rows: Vec<(Bytes, Bytes)> =
        names.zip(list::<&[u8]>(row, 4)?.into_iter().map(Bytes::copy_from_slice)).collect();
    let meta: Option<&[u8]> = cell(row, 2)?;
    rows.extend(meta.map(|meta| (Bytes::from_static(META), Bytes::copy_from_slice(meta))));
    let (streams, seqs) = (list::<i64>(row, 5)?, list::<i64>(row, 6)?);
    let (sizes, classes) = (list::<i32>(row, 7)?, list::<i16>(row, 8)?);
    let mut events = Vec::with_capacity(streams.len());
    for (((stream, seq), size), class) in streams.into_iter().zip(seqs).zip(sizes).zip(classes) {
        let class = u8::try_from(class).ok().and_then(Class::from_code).ok_or_else(unreadable)?;
        let (stream, seq) = (StreamNo(stream.cast_unsigned()), seq.cast_unsigned());
        events.push(EventKey { stream, seq, class, size: size.cast_unsigned() });
    }
    Ok(Snapshot { stamp, rows, events })
}

fn due_session(row: &Row) -> StoreResult<(IndexKey, Time)> {
    let principal = std::str::from_utf8(cell(row, 1)?).map_err(|_| unreadable())?;
    let index_key = IndexKey { session: session_of(cell(row, 0)?)?, principal: Principal::new(principal) };
    Ok((index_key, Time(cell::<i64>(row, 2)?.max(0).cast_unsigned())))
}

fn session_of(bytes: &[u8]) -> StoreResult<SessionId> {
    bytes.try_into().map(SessionId::from_random).map_err(|_| unreadable())
}

/// Encodes a stamp: the version, then the commit names. Empty if the session does not exist.
fn stamp_bytes(stamp: &VersionStamp) -> Vec<u8> {
    if stamp.version == 0 {
        return Vec::new();
    }
    [stamp.version].iter().chain(&stamp.commit_names).flat_map(|number| number.to_be_bytes()).collect()
}

fn stamp_of(bytes: &[u8]) -> Option<VersionStamp> {
    let mut numbers = bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_be_bytes(*chunk));
    Some(VersionStamp { version: numbers.next()?, commit_names: numbers.collect() })
}

/// Returns an error without the value itself, which may be confidential.
fn unreadable() -> StoreError {
    StoreError::Corrupt("a function returned an unexpected value".into())
}

fn cell<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> StoreResult<T> {
    row.try_get(at).map_err(|_| unreadable())
}

/// Reads an array. The functions return NULL for an empty one.
fn list<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> StoreResult<Vec<T>> {
    cell::<Option<Vec<T>>>(row, at).map(Option::unwrap_or_default)
}

fn positions<'a>(keys: impl Iterator<Item = &'a EventKey>) -> (Vec<i64>, Vec<i64>) {
    keys.map(|key| (key.stream.0.cast_signed(), key.seq.cast_signed())).unzip()
}

fn numbers(nodes: &[NodeId]) -> Vec<i64> {
    nodes.iter().map(|node| node.0.cast_signed()).collect()
}

fn id(session: &SessionId) -> &[u8] {
    session.as_bytes()
}

/// Converts a number that is only compared. Numbers that are too large become the maximum.
fn saturating_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
