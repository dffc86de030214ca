//! Threads that read, each with a connection of its own: reading never waits for the writer.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};
use steadfast_session::{
    AskNo, CallNo, ConnNo, Crowd, Errand, Facts, Holdings, Limit, Meta, NodeId, Principal, Read, Rules,
    SessionId, Stream, StreamNo,
};
use steadfast_wire::RequestId;
use tokio::sync::oneshot::Sender;

use super::failure::not_done;
use super::load::{answer, event, facts, kind, number, optional, time};
use super::locks::is_dead;
use super::queue::Queue;
use super::sql::ReaderSql;
use super::value::{Col, int};
use crate::error::StoreError;
use crate::store::Usage;

type To<T> = Sender<Result<T, StoreError>>;

#[derive(Debug)]
pub(super) enum Query {
    Read { session: SessionId, stream: StreamNo, after: u64, budget: u64, to: To<Read> },
    Facts { session: SessionId, to: To<Option<Arc<Facts>>> },
    Held { session: SessionId, node: NodeId, to: To<Holdings> },
    IsAlive { node: NodeId, to: To<bool> },
    Room { principal: Principal, rules: Arc<Rules>, to: To<Option<Limit>> },
    Answers { to: To<()> },
    Usage { to: To<Usage> },
}

/// Runs until the queue is closed and empty.
pub(super) fn run(connection: &Connection, path: &Path, queue: &Queue<Query>) -> rusqlite::Result<()> {
    let mut reader = Reader { sql: ReaderSql::prepare(connection)?, database: path };
    let mut queries = Vec::new();
    // One at a time, so that a long one does not hold up what another reader could do.
    while queue.take(&mut queries, 1) {
        queries.drain(..).for_each(|query| reader.handle(query));
    }
    Ok(())
}

struct Reader<'c> {
    sql: ReaderSql<'c>,
    database: &'c Path,
}

impl Reader<'_> {
    /// Each query begins its own look at the file, so it sees everything that was committed before.
    fn handle(&mut self, query: Query) {
        match query {
            Query::Read { session, stream, after, budget, to } => {
                drop(to.send(self.read(session, stream, after, budget).map_err(|error| not_done(&error))));
            }
            Query::Facts { session, to } => {
                drop(to.send(self.facts(session).map_err(|error| not_done(&error))));
            }
            Query::Held { session, node, to } => {
                drop(to.send(self.held(session, node).map_err(|error| not_done(&error))));
            }
            Query::IsAlive { node, to } => {
                drop(to.send(self.is_alive(node).map_err(|error| not_done(&error))));
            }
            Query::Room { principal, rules, to } => {
                drop(to.send(self.no_room_for(&principal, &rules).map_err(|error| not_done(&error))));
            }
            // One row, which is there for as long as the file can be read.
            Query::Answers { to } => {
                drop(to.send(self.usage().map(drop).map_err(|error| not_done(&error))));
            }
            Query::Usage { to } => drop(to.send(self.usage().map_err(|error| not_done(&error)))),
        }
    }

    fn read(
        &mut self,
        session: SessionId,
        stream: StreamNo,
        after: u64,
        budget: u64,
    ) -> rusqlite::Result<Read> {
        self.sql.begin.execute([])?;
        let read = self.read_in_transaction(session, stream, after, budget);
        self.sql.end.execute([])?;
        read
    }

    fn read_in_transaction(
        &mut self,
        session: SessionId,
        no: StreamNo,
        after: u64,
        budget: u64,
    ) -> rusqlite::Result<Read> {
        let find =
            self.sql.find.query_row([session.as_bytes()], |row| Ok((row.get::<_, i64>(0)?, number(row, 1)?)));
        let Some((key, next_stream)) = find.optional()? else { return Ok(Read::NoSession) };
        let found = self.sql.stream.query_row([key, int(no.0)], |row| {
            let (kind, next_seq, finished_at) = (kind(row.get(0)?), number(row, 1)?, time(row, 2)?);
            let stream = Stream { next_seq, finished_at, ..Stream::new(kind) };
            let answer = answer(row, 3, &stream)?;
            Ok((stream, answer))
        });
        let Some((mut stream, answer)) = found.optional()? else {
            return Ok(Meta { next_stream, ..Meta::default() }.read_absent(no));
        };
        if after < stream.last_seq() {
            self.fetch(key, no, after, budget, &mut stream)?;
            stream.entries.extend(answer);
        }
        Ok(stream.read(after, budget))
    }

    /// Fetches the events after a position, and one beyond the budget as the sign that more follows.
    fn fetch(
        &mut self,
        key: i64,
        no: StreamNo,
        after: u64,
        budget: u64,
        stream: &mut Stream,
    ) -> rusqlite::Result<()> {
        let mut rows = self.sql.events.query([key, int(no.0), int(after)])?;
        let mut size = 0;
        while let Some(row) = rows.next()? {
            let mut entry = event(row, 0)?;
            size += u64::from(entry.size);
            let beyond = size > budget && !stream.entries.is_empty();
            if !beyond {
                entry.payload = Some(row.get::<_, Col<_>>(3)?.0);
            }
            stream.entries.push_back(entry);
            if beyond {
                break;
            }
        }
        Ok(())
    }

    fn facts(&mut self, session: SessionId) -> rusqlite::Result<Option<Arc<Facts>>> {
        self.sql
            .facts
            .query_row([session.as_bytes()], |row| facts(session, row, 0))
            .optional()
            .map(|found| found.map(Arc::new))
    }

    fn held(&mut self, session: SessionId, node: NodeId) -> rusqlite::Result<Holdings> {
        self.sql.begin.execute([])?;
        let held = self.held_in_transaction(session, node);
        self.sql.end.execute([])?;
        held
    }

    fn held_in_transaction(&mut self, session: SessionId, node: NodeId) -> rusqlite::Result<Holdings> {
        let found = self.sql.find_open.query_row([session.as_bytes()], |row| row.get::<_, i64>(0));
        let Some(key) = found.optional()? else { return Ok(Holdings::NoSession) };
        let which = [key, int(node.0)];
        let rows = self.sql.calls_of_node.query_map(which, |row| {
            let (call, id): (_, RequestId) = (CallNo(number(row, 0)?), row.get::<_, Col<_>>(1)?.0);
            let (stream, answer_only) = (StreamNo(number(row, 2)?), row.get(3)?);
            let (request, again) = (optional(row, 4)?, row.get::<_, Option<bool>>(5)?.unwrap_or_default());
            let errand = |request| Errand { call, id: id.clone(), stream, answer_only, request, again };
            let errand = request.map(errand);
            Ok(((call, id), errand))
        })?;
        let calls: Vec<((CallNo, RequestId), Option<Errand>)> = rows.collect::<Result<_, _>>()?;
        let (calls, errands): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let rows =
            self.sql.asks_of_node.query_map(which, |row| Ok((AskNo(number(row, 0)?), optional(row, 1)?)))?;
        let rows: Vec<(AskNo, Option<Bytes>)> = rows.collect::<Result<_, _>>()?;
        let connections = self
            .sql
            .connections_of_node
            .query_map(which, |row| Ok((StreamNo(number(row, 0)?), ConnNo(number(row, 1)?))))?;
        Ok(Holdings::Held {
            calls,
            errands: errands.into_iter().flatten().collect(),
            asks: rows.iter().map(|(ask, _)| *ask).collect(),
            answers: rows.into_iter().filter_map(|(ask, answer)| Some((ask, answer?))).collect(),
            connections: connections.collect::<Result<_, _>>()?,
        })
    }

    fn is_alive(&mut self, node: NodeId) -> rusqlite::Result<bool> {
        let listed = self.sql.node.exists([int(node.0)])?;
        Ok(listed && !is_dead(self.database, node))
    }

    fn no_room_for(&mut self, principal: &Principal, rules: &Rules) -> rusqlite::Result<Option<Limit>> {
        let Usage { sessions, bytes } = self.usage()?;
        let own = self.sql.sessions_of.query_row([principal.as_str()], |row| number(row, 0)).optional()?;
        let crowd = Crowd { store_bytes: Some(bytes), principal_bytes: None };
        Ok(if sessions >= rules.limits.sessions {
            Some(Limit::Sessions)
        } else if own.unwrap_or_default() >= rules.limits.sessions_per_principal {
            Some(Limit::SessionsPerPrincipal)
        } else {
            crowd.over(&rules.limits)
        })
    }

    fn usage(&mut self) -> rusqlite::Result<Usage> {
        self.sql.usage.query_row([], |row| Ok(Usage { sessions: number(row, 0)?, bytes: held(row, 1)? }))
    }
}

/// A file that an older release has written to may count less than there is, and come out below nothing.
fn held(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(at)?).unwrap_or_default())
}
