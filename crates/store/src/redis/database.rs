//! [`RedisDatabase`]: the [`Database`] operations in Redis. A session is two hashes, its rows and
//! its events; the indexes are a few sorted sets, sets and hashes.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use steadfast_session::{Limit, NodeId, Principal, SessionId, Time};
use tokio::task::JoinSet;

use super::cluster::Delivery;
use super::connection::{Connection, LuaScript};
use super::keys::{Keys, event_name, event_of, index_key_of, index_member, node_name, node_of};
use crate::error::StoreError;
use crate::remote::database::{
    Admission, AdmissionRequest, ChangeHint, CommitOutcome, CommitRequest, Database, EventKey, EvictionRows,
    IndexKey, LoadOutcome, NodeExit, OpenSessionCounts, Payloads, Presence, Snapshot, StoreResult,
    UsageSample, VersionStamp,
};
use crate::store::EvictionSample;

/// How many sessions the estimate of the store's bytes is based on.
const SAMPLE_SIZE: usize = 256;

pub(super) struct RedisDatabase {
    connection: Connection,
    keys: Keys,
    session_ttl: String,
    node_ttl: String,
    scripts: Scripts,
}

/// Declares a struct with the scripts of the folder `scripts/` that are named.
macro_rules! scripts {
    ($($name:ident)+) => {
        struct Scripts { $($name: LuaScript),+ }

        impl Scripts {
            fn new() -> Self {
                Self { $($name: LuaScript::new(include_str!(concat!("scripts/", stringify!($name), ".lua")))),+ }
            }
        }
    };
}

scripts! {
    admit_session commit dead_nodes delist_node eviction_sample heartbeat is_alive load read_payloads
    record_presence remove reschedule uncount_session
}

impl RedisDatabase {
    pub(super) fn new(
        connection: Connection,
        prefix: &str,
        session_ttl: Duration,
        node_ttl: Duration,
    ) -> Self {
        let millis = |span: Duration| span.as_millis().to_string();
        Self {
            connection,
            keys: Keys::new(prefix),
            session_ttl: millis(session_ttl),
            node_ttl: millis(node_ttl),
            scripts: Scripts::new(),
        }
    }

    async fn run_on_session(
        &self,
        script: &LuaScript,
        id: SessionId,
        args: &[&[u8]],
    ) -> StoreResult<(SessionLookup, Delivery)> {
        let (rows, log) = (self.keys.rows(id), self.keys.log(id));
        let (reply, delivery) =
            self.connection.run_with_delivery(script, &[rows.as_bytes(), log.as_bytes()], args).await?;
        Ok((parse_lookup(reply)?, delivery))
    }

    async fn run_on_indexes(&self, script: &LuaScript, keys: &[&str], args: &[&[u8]]) -> StoreResult<Value> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        self.connection.run(script, &keys, args).await
    }

    /// Stops counting a session, and deletes its index entries if it was removed.
    async fn uncount_session(
        &self,
        index_key: &IndexKey,
        why: Uncount,
        present: &[NodeId],
    ) -> StoreResult<()> {
        let node_lists: Vec<String> = present.iter().map(|node| self.keys.sessions_of_node(*node)).collect();
        let own = self.keys.sessions_of_principal(&index_key.principal);
        let mut keys = vec![&*self.keys.sweep_schedule, &*self.keys.closed, &*self.keys.principals, &*own];
        keys.extend(node_lists.iter().map(String::as_str));
        let removed: &[u8] = if why == Uncount::Removed { b"1" } else { b"0" };
        let (member, principal) = (index_member(index_key), index_key.principal.as_str());
        let args = [&member, principal.as_bytes(), &index_key.session.as_bytes()[..], removed];
        self.run_on_indexes(&self.scripts.uncount_session, &keys, &args).await.map(drop)
    }

    /// Reads the `meta` rows of sessions. Leaves out sessions that cannot be read at the moment,
    /// and fails if none can.
    async fn read_meta_rows(&self, sessions: Vec<SessionId>) -> StoreResult<Vec<(SessionId, Bytes)>> {
        let mut rows = JoinSet::new();
        for session in sessions {
            let (connection, key) = (self.connection.clone(), self.keys.rows(session));
            rows.spawn_local(async move {
                (session, connection.query(redis::cmd("HGET").arg(key).arg("m")).await)
            });
        }
        let (mut meta_rows, mut failed) = (Vec::new(), None);
        while let Some(row) = rows.join_next().await {
            // A reply is empty if the session was removed and its index entry still exists. A
            // request fails if the server of the session is down.
            match row.map_err(|panic| StoreError::Corrupt(panic.to_string()))? {
                (session, Ok(Value::BulkString(row))) => meta_rows.push((session, row.into())),
                (_, Ok(_)) => {}
                (_, Err(error)) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if meta_rows.is_empty() => Err(error),
            _ => Ok(meta_rows),
        }
    }
}

impl Database for RedisDatabase {
    async fn load(&self, session: SessionId, known: &VersionStamp) -> StoreResult<LoadOutcome> {
        Ok(match self.run_on_session(&self.scripts.load, session, &[&stamp_text(known)]).await?.0 {
            SessionLookup::Missing => LoadOutcome::Missing,
            SessionLookup::Unchanged(_) => LoadOutcome::Unchanged,
            SessionLookup::Changed(snapshot) => LoadOutcome::Changed(snapshot),
        })
    }

    async fn commit(&self, session: SessionId, request: &CommitRequest<'_>) -> StoreResult<CommitOutcome> {
        let mut arguments = Arguments::default();
        arguments.push(stamp_text(request.expected));
        if let Some(new_version) = request.new_version {
            arguments.push(stamp_text(&new_version.stamp));
            arguments.push(self.session_ttl.clone());
            for count in [
                new_version.put_rows.len(),
                new_version.delete_rows.len(),
                new_version.append_events.len(),
                new_version.delete_events.len(),
            ] {
                arguments.push(count.to_string());
            }
            arguments.push(u8::from(new_version.frees_space()).to_string());
            for (name, row) in &new_version.put_rows {
                arguments.push(name.clone());
                arguments.push(row.clone());
            }
            new_version.delete_rows.iter().for_each(|name| arguments.push(name.clone()));
            for (key, payload) in &new_version.append_events {
                arguments.push(event_name(key));
                arguments.push(payload.clone());
            }
            new_version.delete_events.iter().for_each(|key| arguments.push(event_name(key)));
        } else {
            for text in ["", &self.session_ttl, "0", "0", "0", "0", "0"] {
                arguments.push(text.to_owned());
            }
        }
        let (lookup, delivery) =
            self.run_on_session(&self.scripts.commit, session, &arguments.slices()).await?;
        let may_be_own_commit = delivery == Delivery::MaybeRepeated;
        Ok(match lookup {
            SessionLookup::Missing => CommitOutcome::Conflict { current: None, may_be_own_commit },
            SessionLookup::Unchanged(_) => CommitOutcome::Committed,
            SessionLookup::Changed(snapshot) => {
                CommitOutcome::Conflict { current: Some(snapshot), may_be_own_commit }
            }
        })
    }

    async fn read_payloads(
        &self,
        session: SessionId,
        expected: &VersionStamp,
        events: &[EventKey],
    ) -> StoreResult<Payloads> {
        let mut arguments = Arguments::default();
        arguments.push(stamp_text(expected));
        events.iter().for_each(|key| arguments.push(event_name(key)));
        Ok(match self.run_on_session(&self.scripts.read_payloads, session, &arguments.slices()).await?.0 {
            SessionLookup::Missing => Payloads::Missing,
            SessionLookup::Unchanged(payloads) => Payloads::Read(payloads),
            SessionLookup::Changed(snapshot) => Payloads::Changed(snapshot),
        })
    }

    async fn remove(&self, session: SessionId, expected: &VersionStamp) -> StoreResult<bool> {
        let (rows, log) = (self.keys.rows(session), self.keys.log(session));
        let keys = [rows.as_bytes(), log.as_bytes()];
        let removed = self.connection.run(&self.scripts.remove, &keys, &[&stamp_text(expected)]).await?;
        Ok(removed == Value::Int(1))
    }

    async fn admit(&self, request: &AdmissionRequest<'_>) -> StoreResult<Admission> {
        let own = self.keys.sessions_of_principal(&request.index_key.principal);
        let keys = [&*self.keys.sweep_schedule, &*self.keys.closed, &*self.keys.principals, &*own];
        let (member, due) = (index_member(request.index_key), request.due.0.to_string());
        let sessions = request.sessions.to_string();
        let per_principal = request.sessions_per_principal.to_string();
        let principal = request.index_key.principal.as_str();
        let texts = [principal, &due, &sessions, &per_principal, &self.session_ttl].map(str::as_bytes);
        let args: Vec<&[u8]> = [&member[..]].into_iter().chain(texts).collect();
        match self.run_on_indexes(&self.scripts.admit_session, &keys, &args).await? {
            Value::Int(1) => Ok(Admission::Admitted),
            Value::Int(2) => Ok(Admission::AlreadyCounted),
            Value::Int(3) => Ok(Admission::OverLimit(Limit::Sessions)),
            Value::Int(4) => Ok(Admission::OverLimit(Limit::SessionsPerPrincipal)),
            other => Err(unreadable(&other)),
        }
    }

    async fn count_open_sessions(&self, principal: &Principal) -> StoreResult<OpenSessionCounts> {
        let (mut stored, mut closed, mut of_principal) =
            (redis::cmd("ZCARD"), redis::cmd("SCARD"), redis::cmd("ZSCORE"));
        stored.arg(&self.keys.sweep_schedule);
        closed.arg(&self.keys.closed);
        of_principal.arg(&self.keys.principals).arg(principal.as_str());
        let [stored, closed, of_principal] =
            [&stored, &closed, &of_principal].map(|command| self.connection.query(command));
        let (stored, closed, of_principal) = tokio::try_join!(stored, closed, of_principal)?;
        let of_principal = match of_principal {
            Value::Nil => 0,
            Value::Double(count) => whole_number(count),
            other => return Err(unreadable(&other)),
        };
        let total = number(stored)?.saturating_sub(number(closed)?);
        Ok(OpenSessionCounts { total, of_principal: Some(of_principal) })
    }

    async fn mark_closed(&self, index_key: &IndexKey) -> StoreResult<()> {
        self.uncount_session(index_key, Uncount::Closed, &[]).await
    }

    async fn remove_from_indexes(&self, index_key: &IndexKey, present: &[NodeId]) -> StoreResult<()> {
        self.uncount_session(index_key, Uncount::Removed, present).await
    }

    /// The server chooses at random, so `from` is not needed.
    async fn eviction_rows(
        &self,
        requester: &Principal,
        of: Option<&Principal>,
        _from: SessionId,
    ) -> StoreResult<EvictionRows> {
        let own = of.map(|principal| self.keys.sessions_of_principal(principal));
        let mut keys = vec![&*self.keys.sweep_schedule, &*self.keys.closed, &*self.keys.principals];
        keys.extend(own.as_deref());
        let size = EvictionSample::SIZE.to_string();
        let args = [requester.as_str().as_bytes(), size.as_bytes()];
        let reply = self.run_on_indexes(&self.scripts.eviction_sample, &keys, &args).await?;
        let (mut rows, sampled) = parse_eviction_sample(reply)?;
        let names: Vec<SessionId> = sampled.iter().map(|(index_key, _)| index_key.session).collect();
        let meta_rows = self.read_meta_rows(names).await?;
        let with_row = |(index_key, held): (IndexKey, u64)| {
            let (_, row) = meta_rows.iter().find(|(id, _)| *id == index_key.session)?;
            Some((index_key, held, row.clone()))
        };
        rows.sessions = sampled.into_iter().filter_map(with_row).collect();
        Ok(rows)
    }

    async fn sample_usage(&self) -> StoreResult<UsageSample> {
        let closed = number(self.connection.query(redis::cmd("SCARD").arg(&self.keys.closed)).await?)?;
        let stored =
            number(self.connection.query(redis::cmd("ZCARD").arg(&self.keys.sweep_schedule)).await?)?;
        let mut random = redis::cmd("ZRANDMEMBER");
        // A positive count returns distinct members.
        random.arg(&self.keys.sweep_schedule).arg(SAMPLE_SIZE);
        let names = texts(self.connection.query(&random).await?)?;
        let sessions = names.iter().filter_map(|name| index_key_of(name)).map(|index_key| index_key.session);
        let meta_rows =
            self.read_meta_rows(sessions.collect()).await?.into_iter().map(|(_, row)| row).collect();
        Ok(UsageSample { open: stored.saturating_sub(closed), stored, meta_rows })
    }

    async fn ping(&self) -> StoreResult<()> {
        self.connection.ping(&self.keys.nodes).await
    }

    async fn schedule(&self, index_key: &IndexKey, at: Time) -> StoreResult<()> {
        let mut command = redis::cmd("ZADD");
        command.arg(&self.keys.sweep_schedule).arg("LT").arg(at.0).arg(index_member(index_key));
        self.connection.query(&command).await.map(drop)
    }

    async fn reschedule(&self, index_key: &IndexKey, scheduled: Time, at: Time) -> StoreResult<()> {
        let own = self.keys.sessions_of_principal(&index_key.principal);
        let keys = [&*self.keys.sweep_schedule, &*self.keys.closed, &*own];
        let (member, scheduled, at) = (index_member(index_key), scheduled.0.to_string(), at.0.to_string());
        let args = [&member[..], scheduled.as_bytes(), at.as_bytes(), self.session_ttl.as_bytes()];
        self.run_on_indexes(&self.scripts.reschedule, &keys, &args).await.map(drop)
    }

    async fn due_sessions(&self, now: Time, batch: usize) -> StoreResult<Vec<(IndexKey, Time)>> {
        let mut command = redis::cmd("ZRANGEBYSCORE");
        command.arg(&self.keys.sweep_schedule).arg("-inf").arg(now.0).arg("WITHSCORES");
        command.arg("LIMIT").arg(0).arg(i64::try_from(batch).unwrap_or(i64::MAX));
        let Value::Array(due) = self.connection.query(&command).await? else {
            return Ok(Vec::new());
        };
        due.into_iter().map(due_session).collect()
    }

    async fn send_heartbeat(&self, nodes: &[NodeId]) -> StoreResult<()> {
        let lists: Vec<String> = nodes.iter().map(|node| self.keys.sessions_of_node(*node)).collect();
        let keys = &self.keys;
        let mut all =
            vec![&*keys.nodes, &*keys.pulse, &*keys.sweep_schedule, &*keys.closed, &*keys.principals];
        all.extend(lists.iter().map(String::as_str));
        let names: Vec<String> = nodes.iter().map(|node| node_name(*node)).collect();
        let mut args = vec![self.node_ttl.as_bytes(), self.session_ttl.as_bytes()];
        args.extend(names.iter().map(String::as_bytes));
        self.run_on_indexes(&self.scripts.heartbeat, &all, &args).await.map(drop)
    }

    async fn is_alive(&self, node: NodeId) -> StoreResult<bool> {
        let keys = [&*self.keys.nodes, &*self.keys.pulse];
        let args = [node_name(node).into_bytes(), self.node_ttl.clone().into_bytes()];
        let alive = self.run_on_indexes(&self.scripts.is_alive, &keys, &[&args[0], &args[1]]).await?;
        Ok(alive == Value::Int(1))
    }

    async fn dead_nodes(&self) -> StoreResult<Vec<NodeId>> {
        let keys = [&*self.keys.nodes, &*self.keys.pulse];
        let dead = self.run_on_indexes(&self.scripts.dead_nodes, &keys, &[self.node_ttl.as_bytes()]).await?;
        let mut dead: Vec<NodeId> = texts(dead)?.iter().filter_map(|name| node_of(name)).collect();
        dead.sort_unstable();
        Ok(dead)
    }

    async fn record_presence(&self, presence: Presence) -> StoreResult<()> {
        let Presence { session, node, version, is_local } = presence;
        let list = self.keys.sessions_of_node(node);
        let (name, version, is_local) =
            (node_name(node), version.to_string(), u8::from(is_local).to_string());
        let args = [
            name.as_bytes(),
            session.as_bytes(),
            version.as_bytes(),
            is_local.as_bytes(),
            self.session_ttl.as_bytes(),
        ];
        self.run_on_indexes(&self.scripts.record_presence, &[&self.keys.nodes, &list], &args).await.map(drop)
    }

    async fn sessions_of_node(&self, node: NodeId, batch: usize) -> StoreResult<Vec<SessionId>> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(self.keys.sessions_of_node(node)).arg(0).arg(batch.saturating_sub(1));
        let names = texts(self.connection.query(&command).await?)?;
        Ok(names.iter().filter_map(|name| session_of(name)).collect())
    }

    async fn delist_node(
        &self,
        node: NodeId,
        released: &[(SessionId, u64)],
        exit: NodeExit,
    ) -> StoreResult<bool> {
        let list = self.keys.sessions_of_node(node);
        let mut arguments = Arguments::default();
        arguments.push(node_name(node));
        arguments.push(u8::from(exit == NodeExit::Leaving).to_string());
        arguments.push(self.node_ttl.clone());
        for (session, version) in released {
            arguments.push(session.as_bytes().to_vec());
            arguments.push(version.to_string());
        }
        let keys = [&*self.keys.nodes, &*self.keys.pulse, &*list];
        let delisted = self.run_on_indexes(&self.scripts.delist_node, &keys, &arguments.slices()).await?;
        Ok(delisted == Value::Int(1))
    }

    async fn send_hint(&self, nodes: &[NodeId], hint: ChangeHint) -> StoreResult<()> {
        let text = hint.text();
        for node in nodes {
            self.connection.publish(&self.keys.channel(*node), &text).await?;
        }
        Ok(())
    }

    async fn subscribe_node(&self, node: NodeId) -> StoreResult<()> {
        self.connection.subscribe(&self.keys.channel(node)).await
    }

    async fn unsubscribe_node(&self, node: NodeId) -> StoreResult<()> {
        self.connection.unsubscribe(&self.keys.channel(node)).await
    }
}

/// Why a session stops counting toward the limits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Uncount {
    Closed,
    Removed,
}

/// Owns the arguments of a script until they are sent.
#[derive(Default)]
struct Arguments(Vec<Bytes>);

impl Arguments {
    fn push(&mut self, argument: impl Into<Bytes>) {
        self.0.push(argument.into());
    }

    fn slices(&self) -> Vec<&[u8]> {
        self.0.iter().map(|argument| &argument[..]).collect()
    }
}

/// What a script found under the keys of a session.
enum SessionLookup {
    Missing,
    /// The session has the expected version. Contains the payloads, if the request asked for some.
    Unchanged(Vec<Option<Bytes>>),
    Changed(Snapshot),
}

fn unreadable(value: &Value) -> StoreError {
    // Report only the kind. The value itself may be confidential.
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "a text",
        Value::Array(_) => "a list",
        _ => "something else",
    };
    StoreError::Corrupt(format!("a script returned {kind}, which is not the expected reply"))
}

fn parse_lookup(value: Value) -> StoreResult<SessionLookup> {
    let Value::Array(parts) = value else { return Err(unreadable(&value)) };
    let mut parts = parts.into_iter();
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Value::Int(0)), None, None) => Ok(SessionLookup::Missing),
        (Some(Value::Int(1)), payloads, None) => {
            let Some(Value::Array(payloads)) = payloads else {
                return Ok(SessionLookup::Unchanged(Vec::new()));
            };
            Ok(SessionLookup::Unchanged(payloads.into_iter().map(|payload| bytes(payload).ok()).collect()))
        }
        (Some(Value::Int(2)), Some(rows), Some(events)) => snapshot(rows, events).map(SessionLookup::Changed),
        _ => Err(unreadable(&Value::Nil)),
    }
}

fn snapshot(rows: Value, events: Value) -> StoreResult<Snapshot> {
    let (mut stamp, mut found) = (None, Vec::new());
    let mut cells = texts(rows)?.into_iter();
    while let (Some(name), Some(row)) = (cells.next(), cells.next()) {
        match &name[..] {
            b"=" => stamp = stamp_of(&row),
            _ => found.push((name, row)),
        }
    }
    let events = texts(events)?.iter().map(|name| event_of(name)).collect::<Option<_>>();
    match (stamp, events) {
        (Some(stamp), Some(events)) => Ok(Snapshot { stamp, rows: found, events }),
        _ => Err(StoreError::Corrupt(
            "a session has row or event names that this version does not know".into(),
        )),
    }
}

/// Encodes a stamp: the version as text, a dot, the commit names. Empty if the session does not
/// exist.
fn stamp_text(stamp: &VersionStamp) -> Vec<u8> {
    if stamp.version == 0 {
        return Vec::new();
    }
    let mut text = format!("{}.", stamp.version).into_bytes();
    text.extend(stamp.commit_names.iter().flat_map(|name| name.to_be_bytes()));
    text
}

fn stamp_of(text: &[u8]) -> Option<VersionStamp> {
    let at = text.iter().position(|byte| *byte == b'.')?;
    let version = std::str::from_utf8(&text[..at]).ok()?.parse().ok()?;
    let commit_names = text[at + 1..].as_chunks::<8>().0.iter().map(|chunk| u64::from_be_bytes(*chunk));
    Some(VersionStamp { version, commit_names: commit_names.collect() })
}

fn bytes(value: Value) -> StoreResult<Bytes> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.into()),
        Value::SimpleString(text) => Ok(text.into()),
        other => Err(unreadable(&other)),
    }
}

fn texts(value: Value) -> StoreResult<Vec<Bytes>> {
    match value {
        Value::Array(values) | Value::Set(values) => values.into_iter().map(bytes).collect(),
        other => Err(unreadable(&other)),
    }
}

fn number(value: Value) -> StoreResult<u64> {
    match value {
        Value::Int(number) => Ok(number.max(0).cast_unsigned()),
        other => Err(unreadable(&other)),
    }
}

/// Reads the reply of `eviction_sample.lua`.
fn parse_eviction_sample(value: Value) -> StoreResult<(EvictionRows, Vec<(IndexKey, u64)>)> {
    let Value::Array(parts) = value else { return Err(unreadable(&value)) };
    let mut parts = parts.into_iter();
    let mut next = || parts.next().unwrap_or(Value::Nil);
    let (open, principals, own) = (number(next())?, number(next())?, number(next())?);
    let largest = match next() {
        Value::Array(pair) => match &pair[..] {
            [Value::BulkString(name), Value::Int(count)] => std::str::from_utf8(name)
                .ok()
                .map(|name| (Principal::new(name), count.max(&0).cast_unsigned())),
            _ => None,
        },
        other => return Err(unreadable(&other)),
    };
    let mut sampled = Vec::new();
    while let (Some(name), Some(held)) = (parts.next(), parts.next()) {
        sampled.extend(index_key_of(&bytes(name)?).zip(Some(number(held)?)));
    }
    Ok((EvictionRows { sessions: Vec::new(), open, principals, own, largest }, sampled))
}

fn session_of(name: &[u8]) -> Option<SessionId> {
    name.try_into().ok().map(SessionId::from_random)
}

fn due_session(pair: Value) -> StoreResult<(IndexKey, Time)> {
    if let Value::Array(pair) = &pair
        && let [Value::BulkString(name), Value::Double(at)] = &pair[..]
        && let Some(index_key) = index_key_of(name)
    {
        return Ok((index_key, Time(whole_number(*at))));
    }
    Err(unreadable(&pair))
}

/// Converts a score. Scores are times in milliseconds and counts, far below the limit up to which a
/// double is exact.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked by the max")]
fn whole_number(score: f64) -> u64 {
    score.max(0.0) as u64
}
