//! Sessions as rows, and the functions that read and write them.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use steadfast_session::{Limit, NodeId, Principal, SessionId, StreamNo, Time};
use tokio::sync::mpsc;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::PostgresOptions;
use super::failure::NoLine;
use super::line::Door;
use super::lines::{Lines, Params};
use super::listener::Listener;
use super::options::is_schema;
use crate::error::StoreError;
use crate::remote::backing::{
    Admission, Admit, Answer, Backing, Committed, Count, EventKey, Listed, Loaded, OpenSessions, Payloads,
    Presence, Snapshot, Stamp, Told, Write,
};
use crate::remote::{META, class_code, class_of};

/// Sessions from which the bytes of all are estimated.
const SAMPLE: i64 = 256;

pub(super) struct Postgres {
    lines: Lines,
    beats: Lines,
    listener: Rc<Listener>,
    schema: String,
    node_ttl: i64,
}

impl Postgres {
    pub(super) async fn open(options: &PostgresOptions, news: mpsc::Sender<Told>) -> Answer<Self> {
        if !is_schema(&options.schema) {
            let why = "the name of a schema has up to 40 letters, digits, `_` and `-`, and does not begin with `pg_`";
            return Err(StoreError::Unavailable(why.into()));
        }
        let door = Door::new(options)?;
        let lines = Lines::new(door.clone(), options);
        let beats = options.for_beats();
        match lines.begin().await {
            Ok(()) => {}
            // It will be there again: whoever uses the store finds out.
            Err(NoLine::Unreachable(why)) => tracing::warn!(why, "the database cannot be reached"),
            Err(refused @ NoLine::Refused(_)) => return Err(refused.into()),
        }
        Ok(Self {
            lines,
            beats: Lines::new(Door::new(&beats)?, &beats),
            listener: Listener::start(door, options.response_timeout, news),
            schema: options.schema.clone(),
            node_ttl: millis(options.node_ttl),
        })
    }

    async fn find(&self, function: &'static str, params: Params<'_>) -> Answer<Found> {
        found(&self.one(function, params).await?)
    }

    async fn one(&self, function: &'static str, params: Params<'_>) -> Answer<Row> {
        let mut rows = self.lines.call(function, params).await?;
        match (rows.pop(), rows.is_empty()) {
            (Some(row), true) => Ok(row),
            _ => Err(StoreError::Corrupt(format!("the function {function} gave no single row"))),
        }
    }

    fn channel(&self, node: NodeId) -> String {
        format!("{}:{:016x}", self.schema, node.0)
    }
}

impl Backing for Postgres {
    async fn load(&self, session: SessionId, seen: &Stamp) -> Answer<Loaded> {
        Ok(match self.find("load", &[&id(&session), &stamp_bytes(seen)]).await? {
            Found::Nothing => Loaded::Missing,
            Found::AsSeen(_) => Loaded::Same,
            Found::Other(snapshot) => Loaded::Newer(snapshot),
        })
    }

    async fn commit(&self, session: SessionId, write: &Write<'_>) -> Answer<Committed> {
        let nothing = crate::remote::backing::Next::default();
        let next = write.next.unwrap_or(&nothing);
        let stamp = write.next.map(|next| stamp_bytes(&next.stamp));
        let meta = next.put.iter().find(|(name, _)| name == META).map(|(_, row)| &row[..]);
        let put = || next.put.iter().filter(|(name, _)| name != META);
        let names: Vec<&[u8]> = put().map(|(name, _)| &name[..]).collect();
        let parts: Vec<&[u8]> = put().map(|(_, row)| &row[..]).collect();
        let drop: Vec<&[u8]> = next.drop.iter().map(|name| &name[..]).collect();
        let (streams, seqs) = places(next.append.iter().map(|(key, _)| key));
        let sizes: Vec<i32> = next.append.iter().map(|(key, _)| key.size.cast_signed()).collect();
        let classes: Vec<i16> = next.append.iter().map(|(key, _)| class_code(key.class) as i16).collect();
        let payloads: Vec<&[u8]> = next.append.iter().map(|(_, payload)| &payload[..]).collect();
        let (forget_streams, forget_seqs) = places(next.forget.iter());
        let params: Params<'_> = &[
            &id(&session),
            &stamp_bytes(write.seen),
            &stamp,
            &meta,
            &names,
            &parts,
            &drop,
            &streams,
            &seqs,
            &sizes,
            &classes,
            &payloads,
            &forget_streams,
            &forget_seqs,
        ];
        Ok(match self.find("commit", params).await? {
            Found::Nothing => Committed::Beaten { session: None, perhaps_by_itself: false },
            Found::AsSeen(_) => Committed::Done,
            Found::Other(snapshot) => Committed::Beaten { session: Some(snapshot), perhaps_by_itself: false },
        })
    }

    async fn payloads(&self, session: SessionId, seen: &Stamp, events: &[EventKey]) -> Answer<Payloads> {
        let (streams, seqs) = places(events.iter());
        let params: Params<'_> = &[&id(&session), &stamp_bytes(seen), &streams, &seqs];
        Ok(match self.find("payloads", params).await? {
            Found::Nothing => Payloads::Missing,
            Found::AsSeen(payloads) => Payloads::Read(payloads),
            Found::Other(snapshot) => Payloads::Newer(snapshot),
        })
    }

    async fn remove(&self, session: SessionId, seen: &Stamp) -> Answer<bool> {
        cell(&self.one("remove", &[&id(&session), &stamp_bytes(seen)]).await?, 0)
    }

    async fn admit(&self, admit: &Admit<'_>) -> Answer<Admission> {
        let principal = admit.listed.principal.as_str().as_bytes();
        let (all, own) = (whole(admit.sessions), whole(admit.sessions_per_principal));
        let params: Params<'_> = &[&id(&admit.listed.session), &principal, &whole(admit.due.0), &all, &own];
        match cell::<i32>(&self.one("admit", params).await?, 0)? {
            1 => Ok(Admission::Admitted),
            2 => Ok(Admission::Known),
            3 => Ok(Admission::OverLimit(Limit::Sessions)),
            4 => Ok(Admission::OverLimit(Limit::SessionsPerPrincipal)),
            _ => Err(unreadable()),
        }
    }

    /// A function that tells both would be another version of the schema; a hint is not worth that.
    async fn open_sessions(&self, _principal: &Principal) -> Answer<OpenSessions> {
        let row = self.one("count_sessions", &[&0_i64]).await?;
        Ok(OpenSessions { all: cell::<i64>(&row, 1)?.cast_unsigned(), own: None })
    }

    async fn release(&self, listed: &Listed) -> Answer<()> {
        self.lines.call("release", &[&id(&listed.session)]).await.map(drop)
    }

    async fn forget(&self, listed: &Listed, present: &[NodeId]) -> Answer<()> {
        self.lines.call("forget", &[&id(&listed.session), &numbers(present)]).await.map(drop)
    }

    async fn count(&self) -> Answer<Count> {
        let row = self.one("count_sessions", &[&SAMPLE]).await?;
        let number = |at| cell::<i64>(&row, at).map(|number| number.max(0).cast_unsigned());
        let sample = list::<&[u8]>(&row, 2)?.into_iter().map(Bytes::copy_from_slice).collect();
        Ok(Count { listed: number(0)?, open: number(1)?, sample })
    }

    async fn ping(&self) -> Answer<()> {
        // Whoever that is: the schema is there, and its functions may be called.
        self.lines.call("alive", &[&0_i64, &self.node_ttl]).await.map(drop)
    }

    async fn schedule(&self, listed: &Listed, at: Time) -> Answer<()> {
        self.lines.call("schedule", &[&id(&listed.session), &whole(at.0)]).await.map(drop)
    }

    async fn reschedule(&self, listed: &Listed, seen: Time, at: Time) -> Answer<()> {
        let params: Params<'_> = &[&id(&listed.session), &whole(seen.0), &whole(at.0)];
        self.lines.call("reschedule", params).await.map(drop)
    }

    async fn due(&self, now: Time, batch: usize) -> Answer<Vec<(Listed, Time)>> {
        let batch = i64::try_from(batch).unwrap_or(i64::MAX);
        let rows = self.lines.call("due", &[&whole(now.0), &batch]).await?;
        rows.iter().map(due_session).collect()
    }

    async fn beat(&self, nodes: &[NodeId]) -> Answer<()> {
        self.beats.call("beat", &[&numbers(nodes), &self.node_ttl]).await.map(drop)
    }

    async fn is_alive(&self, node: NodeId) -> Answer<bool> {
        cell(&self.one("alive", &[&node.0.cast_signed(), &self.node_ttl]).await?, 0)
    }

    async fn dead_nodes(&self) -> Answer<Vec<NodeId>> {
        let rows = self.lines.call("dead", &[&self.node_ttl]).await?;
        let dead = rows.iter().map(|row| Ok(NodeId(cell::<i64>(row, 0)?.cast_unsigned())));
        let mut dead = dead.collect::<Answer<Vec<NodeId>>>()?;
        // Here, since the database has no numbers without a sign.
        dead.sort_unstable();
        Ok(dead)
    }

    async fn present(&self, presence: Presence) -> Answer<()> {
        let Presence { session, node, version, own } = presence;
        let params: Params<'_> = &[&id(&session), &node.0.cast_signed(), &whole(version), &own];
        self.lines.call("present", params).await.map(drop)
    }

    async fn sessions_of(&self, node: NodeId, batch: usize) -> Answer<Vec<SessionId>> {
        let batch = i64::try_from(batch).unwrap_or(i64::MAX);
        let rows = self.lines.call("sessions_of", &[&node.0.cast_signed(), &batch]).await?;
        rows.iter().map(|row| session_of(cell(row, 0)?)).collect()
    }

    async fn strike(&self, node: NodeId, done: &[(SessionId, u64)], leaves: bool) -> Answer<bool> {
        let sessions: Vec<&[u8]> = done.iter().map(|(session, _)| id(session)).collect();
        let versions: Vec<i64> = done.iter().map(|(_, version)| whole(*version)).collect();
        let params: Params<'_> = &[&node.0.cast_signed(), &sessions, &versions, &leaves, &self.node_ttl];
        cell(&self.one("strike", params).await?, 0)
    }

    async fn tell(&self, nodes: &[NodeId], told: Told) -> Answer<()> {
        let channels: Vec<String> = nodes.iter().map(|node| self.channel(*node)).collect();
        self.lines.call("tell", &[&channels, &told.text()]).await.map(drop)
    }

    async fn hear(&self, node: NodeId) -> Answer<()> {
        self.listener.hear(self.channel(node)).await
    }

    async fn stop_hearing(&self, node: NodeId) -> Answer<()> {
        self.listener.stop_hearing(&self.channel(node)).await
    }
}

/// What a function found in a session's place.
enum Found {
    Nothing,
    /// The version that was seen, and the payloads that were asked for.
    AsSeen(Vec<Option<Bytes>>),
    Other(Snapshot),
}

/// Reads a row of the type `found`.
fn found(row: &Row) -> Answer<Found> {
    match cell::<i32>(row, 0)? {
        0 => Ok(Found::Nothing),
        1 => {
            let payloads = list::<Option<&[u8]>>(row, 9)?.into_iter();
            Ok(Found::AsSeen(payloads.map(|payload| payload.map(Bytes::copy_from_slice)).collect()))
        }
        2 => snapshot(row).map(Found::Other),
        _ => Err(unreadable()),
    }
}

fn snapshot(row: &Row) -> Answer<Snapshot> {
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
        let class = u64::try_from(class).ok().and_then(class_of).ok_or_else(unreadable)?;
        let (stream, seq) = (StreamNo(stream.cast_unsigned()), seq.cast_unsigned());
        events.push(EventKey { stream, seq, class, size: size.cast_unsigned() });
    }
    Ok(Snapshot { stamp, rows, events })
}

fn due_session(row: &Row) -> Answer<(Listed, Time)> {
    let principal = std::str::from_utf8(cell(row, 1)?).map_err(|_| unreadable())?;
    let listed = Listed { session: session_of(cell(row, 0)?)?, principal: Principal::new(principal) };
    Ok((listed, Time(cell::<i64>(row, 2)?.max(0).cast_unsigned())))
}

fn session_of(bytes: &[u8]) -> Answer<SessionId> {
    bytes.try_into().map(SessionId::from_random).map_err(|_| unreadable())
}

/// A version as bytes: its number, then names of commits; nothing for that of a session which does not exist.
fn stamp_bytes(stamp: &Stamp) -> Vec<u8> {
    if stamp.version == 0 {
        return Vec::new();
    }
    [stamp.version].iter().chain(&stamp.attempts).flat_map(|number| number.to_be_bytes()).collect()
}

fn stamp_of(bytes: &[u8]) -> Option<Stamp> {
    let mut numbers = bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_be_bytes(*chunk));
    Some(Stamp { version: numbers.next()?, attempts: numbers.collect() })
}

/// Without the value itself: it may hold what nobody should read in a log.
fn unreadable() -> StoreError {
    StoreError::Corrupt("a function gave something that makes no sense".into())
}

fn cell<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Answer<T> {
    row.try_get(at).map_err(|_| unreadable())
}

/// A list, which is nothing at all if it is empty.
fn list<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Answer<Vec<T>> {
    cell::<Option<Vec<T>>>(row, at).map(Option::unwrap_or_default)
}

fn places<'a>(keys: impl Iterator<Item = &'a EventKey>) -> (Vec<i64>, Vec<i64>) {
    keys.map(|key| (key.stream.0.cast_signed(), key.seq.cast_signed())).unzip()
}

fn numbers(nodes: &[NodeId]) -> Vec<i64> {
    nodes.iter().map(|node| node.0.cast_signed()).collect()
}

fn id(session: &SessionId) -> &[u8] {
    session.as_bytes()
}

/// A number that is compared: what is beyond all bounds stays there.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
