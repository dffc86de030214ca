//! Sessions as two hashes each, and the lists beside them.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use steadfast_session::{Limit, NodeId, Principal, SessionId, Time};
use tokio::task::JoinSet;

use super::cluster::Sent;
use super::keys::{Keys, event_name, event_of, listed_of, member, node_name, node_of};
use super::link::{Link, Source};
use crate::error::StoreError;
use crate::remote::backing::{
    Admission, Admit, Answer, Backing, Committed, Count, EventKey, Listed, Loaded, OpenSessions, Payloads,
    Presence, Snapshot, Stamp, Told, Write,
};

/// Sessions from which the bytes of all are estimated.
const SAMPLE: usize = 256;

pub(super) struct Redis {
    link: Link,
    keys: Keys,
    keep: String,
    node_ttl: String,
    scripts: Scripts,
}

macro_rules! scripts {
    ($($name:ident)+) => {
        struct Scripts { $($name: Source),+ }

        impl Scripts {
            fn new() -> Self {
                Self { $($name: Source::new(include_str!(concat!("scripts/", stringify!($name), ".lua")))),+ }
            }
        }
    };
}

scripts! { admit alive beat commit dead load payloads present release remove reschedule strike }

impl Redis {
    pub(super) fn new(link: Link, prefix: &str, keep: Duration, node_ttl: Duration) -> Self {
        let millis = |span: Duration| span.as_millis().to_string();
        Self {
            link,
            keys: Keys::new(prefix),
            keep: millis(keep),
            node_ttl: millis(node_ttl),
            scripts: Scripts::new(),
        }
    }

    async fn on_session(&self, script: &Source, id: SessionId, args: &[&[u8]]) -> Answer<(Found, Sent)> {
        let (rows, log) = (self.keys.rows(id), self.keys.log(id));
        let (answer, sent) = self.link.run_noting(script, &[rows.as_bytes(), log.as_bytes()], args).await?;
        Ok((found(answer)?, sent))
    }

    async fn on_lists(&self, script: &Source, keys: &[&str], args: &[&[u8]]) -> Answer<Value> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        self.link.run(script, &keys, args).await
    }

    async fn uncount(&self, listed: &Listed, is_gone: bool, present: &[NodeId]) -> Answer<()> {
        let lists: Vec<String> = present.iter().map(|node| self.keys.sessions_of(*node)).collect();
        let mut keys = vec![&*self.keys.agenda, &*self.keys.closed, &*self.keys.by_principal];
        keys.extend(lists.iter().map(String::as_str));
        let gone: &[u8] = if is_gone { b"1" } else { b"0" };
        let (member, principal) = (member(listed), listed.principal.as_str());
        let args = [&member, principal.as_bytes(), &listed.session.as_bytes()[..], gone];
        self.on_lists(&self.scripts.release, &keys, &args).await.map(drop)
    }
}

impl Backing for Redis {
    async fn load(&self, session: SessionId, seen: &Stamp) -> Answer<Loaded> {
        Ok(match self.on_session(&self.scripts.load, session, &[&stamp_text(seen)]).await?.0 {
            Found::Nothing => Loaded::Missing,
            Found::AsSeen(_) => Loaded::Same,
            Found::Other(snapshot) => Loaded::Newer(snapshot),
        })
    }

    async fn commit(&self, session: SessionId, write: &Write<'_>) -> Answer<Committed> {
        let mut arguments = Arguments::default();
        arguments.push(stamp_text(write.seen));
        if let Some(next) = write.next {
            arguments.push(stamp_text(&next.stamp));
            arguments.push(self.keep.clone());
            for count in [next.put.len(), next.drop.len(), next.append.len(), next.forget.len()] {
                arguments.push(count.to_string());
            }
            arguments.push(u8::from(next.is_relief()).to_string());
            for (name, row) in &next.put {
                arguments.push(name.clone());
                arguments.push(row.clone());
            }
            next.drop.iter().for_each(|name| arguments.push(name.clone()));
            for (key, payload) in &next.append {
                arguments.push(event_name(key));
                arguments.push(payload.clone());
            }
            next.forget.iter().for_each(|key| arguments.push(event_name(key)));
        } else {
            for text in ["", &self.keep, "0", "0", "0", "0", "0"] {
                arguments.push(text.to_owned());
            }
        }
        let (found, sent) = self.on_session(&self.scripts.commit, session, &arguments.slices()).await?;
        let perhaps_by_itself = sent == Sent::PerhapsMore;
        Ok(match found {
            Found::Nothing => Committed::Beaten { session: None, perhaps_by_itself },
            Found::AsSeen(_) => Committed::Done,
            Found::Other(snapshot) => Committed::Beaten { session: Some(snapshot), perhaps_by_itself },
        })
    }

    async fn payloads(&self, session: SessionId, seen: &Stamp, events: &[EventKey]) -> Answer<Payloads> {
        let mut arguments = Arguments::default();
        arguments.push(stamp_text(seen));
        events.iter().for_each(|key| arguments.push(event_name(key)));
        Ok(match self.on_session(&self.scripts.payloads, session, &arguments.slices()).await?.0 {
            Found::Nothing => Payloads::Missing,
            Found::AsSeen(payloads) => Payloads::Read(payloads),
            Found::Other(snapshot) => Payloads::Newer(snapshot),
        })
    }

    async fn remove(&self, session: SessionId, seen: &Stamp) -> Answer<bool> {
        let (rows, log) = (self.keys.rows(session), self.keys.log(session));
        let keys = [rows.as_bytes(), log.as_bytes()];
        let removed = self.link.run(&self.scripts.remove, &keys, &[&stamp_text(seen)]).await?;
        Ok(removed == Value::Int(1))
    }

    async fn admit(&self, admit: &Admit<'_>) -> Answer<Admission> {
        let keys = [&*self.keys.agenda, &*self.keys.closed, &*self.keys.by_principal];
        let (member, due) = (member(admit.listed), admit.due.0.to_string());
        let (all, own) = (admit.sessions.to_string(), admit.sessions_per_principal.to_string());
        let principal = admit.listed.principal.as_str();
        let texts = [principal, &due, &all, &own, &self.keep].map(str::as_bytes);
        let args: Vec<&[u8]> = [&member[..]].into_iter().chain(texts).collect();
        match self.on_lists(&self.scripts.admit, &keys, &args).await? {
            Value::Int(1) => Ok(Admission::Admitted),
            Value::Int(2) => Ok(Admission::Known),
            Value::Int(3) => Ok(Admission::OverLimit(Limit::Sessions)),
            Value::Int(4) => Ok(Admission::OverLimit(Limit::SessionsPerPrincipal)),
            other => Err(unreadable(&other)),
        }
    }

    async fn open_sessions(&self, principal: &Principal) -> Answer<OpenSessions> {
        let (mut listed, mut closed, mut own) =
            (redis::cmd("ZCARD"), redis::cmd("SCARD"), redis::cmd("HGET"));
        listed.arg(&self.keys.agenda);
        closed.arg(&self.keys.closed);
        own.arg(&self.keys.by_principal).arg(principal.as_str());
        let asked = [&listed, &closed, &own].map(|command| self.link.query(command));
        let [listed, closed, own] = asked;
        let (listed, closed, own) = tokio::try_join!(listed, closed, own)?;
        let own = match own {
            Value::Nil => 0,
            Value::BulkString(digits) => {
                std::str::from_utf8(&digits).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
            }
            other => return Err(unreadable(&other)),
        };
        Ok(OpenSessions { all: number(listed)?.saturating_sub(number(closed)?), own: Some(own) })
    }

    async fn release(&self, listed: &Listed) -> Answer<()> {
        self.uncount(listed, false, &[]).await
    }

    async fn forget(&self, listed: &Listed, present: &[NodeId]) -> Answer<()> {
        self.uncount(listed, true, present).await
    }

    async fn count(&self) -> Answer<Count> {
        let closed = number(self.link.query(redis::cmd("SCARD").arg(&self.keys.closed)).await?)?;
        let listed = number(self.link.query(redis::cmd("ZCARD").arg(&self.keys.agenda)).await?)?;
        let mut some = redis::cmd("ZRANDMEMBER");
        // Each of them once.
        some.arg(&self.keys.agenda).arg(SAMPLE);
        let mut rows = JoinSet::new();
        for name in texts(self.link.query(&some).await?)? {
            let Some(Listed { session, .. }) = listed_of(&name) else { continue };
            let (link, key) = (self.link.clone(), self.keys.rows(session));
            rows.spawn_local(async move { link.query(redis::cmd("HGET").arg(key).arg("m")).await });
        }
        let (mut sample, mut failed) = (Vec::new(), None);
        while let Some(row) = rows.join_next().await {
            // Nothing is there if a session is gone and still listed, and none of those whose part of a cluster is down.
            match row.map_err(|panic| StoreError::Corrupt(panic.to_string()))? {
                Ok(Value::BulkString(row)) => sample.push(row.into()),
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed.filter(|_| sample.is_empty()) {
            return Err(error);
        }
        Ok(Count { open: listed.saturating_sub(closed), listed, sample })
    }

    async fn ping(&self) -> Answer<()> {
        self.link.ping(&self.keys.nodes).await
    }

    async fn schedule(&self, listed: &Listed, at: Time) -> Answer<()> {
        let mut command = redis::cmd("ZADD");
        command.arg(&self.keys.agenda).arg("LT").arg(at.0).arg(member(listed));
        self.link.query(&command).await.map(drop)
    }

    async fn reschedule(&self, listed: &Listed, seen: Time, at: Time) -> Answer<()> {
        let args = [member(listed), seen.0.to_string().into_bytes(), at.0.to_string().into_bytes()];
        let args = args.each_ref().map(Vec::as_slice);
        self.on_lists(&self.scripts.reschedule, &[&self.keys.agenda], &args).await.map(drop)
    }

    async fn due(&self, now: Time, batch: usize) -> Answer<Vec<(Listed, Time)>> {
        let mut command = redis::cmd("ZRANGEBYSCORE");
        command.arg(&self.keys.agenda).arg("-inf").arg(now.0).arg("WITHSCORES");
        command.arg("LIMIT").arg(0).arg(i64::try_from(batch).unwrap_or(i64::MAX));
        let Value::Array(found) = self.link.query(&command).await? else { return Ok(Vec::new()) };
        found.into_iter().map(due_session).collect()
    }

    async fn beat(&self, nodes: &[NodeId]) -> Answer<()> {
        let lists: Vec<String> = nodes.iter().map(|node| self.keys.sessions_of(*node)).collect();
        let keys = &self.keys;
        let mut all = vec![&*keys.nodes, &*keys.pulse, &*keys.agenda, &*keys.closed, &*keys.by_principal];
        all.extend(lists.iter().map(String::as_str));
        let names: Vec<String> = nodes.iter().map(|node| node_name(*node)).collect();
        let mut args = vec![self.node_ttl.as_bytes(), self.keep.as_bytes()];
        args.extend(names.iter().map(String::as_bytes));
        self.on_lists(&self.scripts.beat, &all, &args).await.map(drop)
    }

    async fn is_alive(&self, node: NodeId) -> Answer<bool> {
        let keys = [&*self.keys.nodes, &*self.keys.pulse];
        let args = [node_name(node).into_bytes(), self.node_ttl.clone().into_bytes()];
        let alive = self.on_lists(&self.scripts.alive, &keys, &[&args[0], &args[1]]).await?;
        Ok(alive == Value::Int(1))
    }

    async fn dead_nodes(&self) -> Answer<Vec<NodeId>> {
        let keys = [&*self.keys.nodes, &*self.keys.pulse];
        let dead = self.on_lists(&self.scripts.dead, &keys, &[self.node_ttl.as_bytes()]).await?;
        let mut dead: Vec<NodeId> = texts(dead)?.iter().filter_map(|name| node_of(name)).collect();
        dead.sort_unstable();
        Ok(dead)
    }

    async fn present(&self, presence: Presence) -> Answer<()> {
        let Presence { session, node, version, own } = presence;
        let list = self.keys.sessions_of(node);
        let (name, version, own) = (node_name(node), version.to_string(), u8::from(own).to_string());
        let args =
            [name.as_bytes(), session.as_bytes(), version.as_bytes(), own.as_bytes(), self.keep.as_bytes()];
        self.on_lists(&self.scripts.present, &[&self.keys.nodes, &list], &args).await.map(drop)
    }

    async fn sessions_of(&self, node: NodeId, batch: usize) -> Answer<Vec<SessionId>> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(self.keys.sessions_of(node)).arg(0).arg(batch.saturating_sub(1));
        let names = texts(self.link.query(&command).await?)?;
        Ok(names.iter().filter_map(|name| session_of(name)).collect())
    }

    async fn strike(&self, node: NodeId, done: &[(SessionId, u64)], leaves: bool) -> Answer<bool> {
        let list = self.keys.sessions_of(node);
        let mut arguments = Arguments::default();
        arguments.push(node_name(node));
        arguments.push(u8::from(leaves).to_string());
        arguments.push(self.node_ttl.clone());
        for (session, version) in done {
            arguments.push(session.as_bytes().to_vec());
            arguments.push(version.to_string());
        }
        let keys = [&*self.keys.nodes, &*self.keys.pulse, &*list];
        let struck = self.on_lists(&self.scripts.strike, &keys, &arguments.slices()).await?;
        Ok(struck == Value::Int(1))
    }

    async fn tell(&self, nodes: &[NodeId], told: Told) -> Answer<()> {
        let text = told.text();
        for node in nodes {
            self.link.publish(&self.keys.channel(*node), &text).await?;
        }
        Ok(())
    }

    async fn hear(&self, node: NodeId) -> Answer<()> {
        self.link.subscribe(&self.keys.channel(node)).await
    }

    async fn stop_hearing(&self, node: NodeId) -> Answer<()> {
        self.link.unsubscribe(&self.keys.channel(node)).await
    }
}

/// Arguments of a script, until they are sent.
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

/// What a script found in a session's place.
enum Found {
    Nothing,
    /// The version that was seen, and the payloads that were asked for.
    AsSeen(Vec<Option<Bytes>>),
    Other(Snapshot),
}

fn unreadable(value: &Value) -> StoreError {
    // Without the value itself: it may hold what nobody should read in a log.
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "a text",
        Value::Array(_) => "a list",
        _ => "something else",
    };
    StoreError::Corrupt(format!("a script gave {kind} where that makes no sense"))
}

fn found(value: Value) -> Answer<Found> {
    let Value::Array(parts) = value else { return Err(unreadable(&value)) };
    let mut parts = parts.into_iter();
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Value::Int(0)), None, None) => Ok(Found::Nothing),
        (Some(Value::Int(1)), payloads, None) => {
            let Some(Value::Array(payloads)) = payloads else { return Ok(Found::AsSeen(Vec::new())) };
            Ok(Found::AsSeen(payloads.into_iter().map(|payload| bytes(payload).ok()).collect()))
        }
        (Some(Value::Int(2)), Some(rows), Some(events)) => snapshot(rows, events).map(Found::Other),
        _ => Err(unreadable(&Value::Nil)),
    }
}

fn snapshot(rows: Value, events: Value) -> Answer<Snapshot> {
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
        _ => Err(StoreError::Corrupt("a session with names that nobody here gives".into())),
    }
}

/// A version as text; nothing for that of a session which does not exist.
fn stamp_text(stamp: &Stamp) -> Vec<u8> {
    if stamp.version == 0 {
        return Vec::new();
    }
    let mut text = format!("{}.", stamp.version).into_bytes();
    text.extend(stamp.attempts.iter().flat_map(|attempt| attempt.to_be_bytes()));
    text
}

fn stamp_of(text: &[u8]) -> Option<Stamp> {
    let at = text.iter().position(|byte| *byte == b'.')?;
    let version = std::str::from_utf8(&text[..at]).ok()?.parse().ok()?;
    let attempts = text[at + 1..].as_chunks::<8>().0.iter().map(|chunk| u64::from_be_bytes(*chunk));
    Some(Stamp { version, attempts: attempts.collect() })
}

fn bytes(value: Value) -> Answer<Bytes> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.into()),
        Value::SimpleString(text) => Ok(text.into()),
        other => Err(unreadable(&other)),
    }
}

fn texts(value: Value) -> Answer<Vec<Bytes>> {
    match value {
        Value::Array(values) | Value::Set(values) => values.into_iter().map(bytes).collect(),
        other => Err(unreadable(&other)),
    }
}

fn number(value: Value) -> Answer<u64> {
    match value {
        Value::Int(number) => Ok(number.max(0).cast_unsigned()),
        other => Err(unreadable(&other)),
    }
}

fn session_of(name: &[u8]) -> Option<SessionId> {
    name.try_into().ok().map(SessionId::from_random)
}

fn due_session(pair: Value) -> Answer<(Listed, Time)> {
    if let Value::Array(pair) = &pair
        && let [Value::BulkString(name), Value::Double(at)] = &pair[..]
        && let Some(listed) = listed_of(name)
    {
        // Times are whole milliseconds, far below what a double holds exactly.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked by the max")]
        return Ok((listed, Time(at.max(0.0) as u64)));
    }
    Err(unreadable(&pair))
}
