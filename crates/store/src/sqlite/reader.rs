//! The reader threads. Each has its own connection, so queries never wait for the writer.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use steadfast_session::{
    CallNo, ConnNo, Facts, ForwardedCall, Holdings, LastUse, Limit, Meta, NodeId, Principal, Read, Rules,
    ServerRequestNo, SessionId, SharedUsage, Stream, StreamNo,
};
use steadfast_wire::RequestId;
use tokio::sync::oneshot::Sender;

use super::columns::{Column, int};
use super::errors::classify_error;
use super::load::{answer, event, facts, kind, number, optional, time};
use super::node_locks::is_dead;
use super::queue::Queue;
use super::statements::ReaderStatements;
use crate::error::StoreError;
use crate::store::{EvictionSample, SampledSession, Usage};

type ReplySender<T> = Sender<Result<T, StoreError>>;

#[derive(Debug)]
pub(super) enum Query {
    Read {
        session: SessionId,
        stream: StreamNo,
        after: u64,
        budget: u64,
        to: ReplySender<Read>,
    },
    Facts {
        session: SessionId,
        to: ReplySender<Option<Arc<Facts>>>,
    },
    Holdings {
        session: SessionId,
        node: NodeId,
        to: ReplySender<Holdings>,
    },
    IsAlive {
        node: NodeId,
        to: ReplySender<bool>,
    },
    ReachedLimit {
        principal: Principal,
        rules: Arc<Rules>,
        to: ReplySender<Option<Limit>>,
    },
    EvictionSample {
        requester: Principal,
        of: Option<Principal>,
        from: SessionId,
        to: ReplySender<EvictionSample>,
    },
    Ping {
        to: ReplySender<()>,
    },
    Usage {
        to: ReplySender<Usage>,
    },
}

/// Runs until the queue is closed and empty.
pub(super) fn run(connection: &Connection, path: &Path, queue: &Queue<Query>) -> rusqlite::Result<()> {
    let mut reader = Reader { statements: ReaderStatements::prepare(connection)?, database: path };
    let mut queries = Vec::new();
    // One at a time, so that a slow query does not delay queries that another reader could run.
    while queue.take(&mut queries, 1) {
        queries.drain(..).for_each(|query| reader.handle(query));
    }
    Ok(())
}

struct Reader<'c> {
    statements: ReaderStatements<'c>,
    database: &'c Path,
}

impl Reader<'_> {
    /// Runs one query. Each query starts a new read transaction, so it sees everything that was
    /// committed before.
    fn handle(&mut self, query: Query) {
        match query {
            Query::Read { session, stream, after, budget, to } => {
                drop(
                    to.send(
                        self.read(session, stream, after, budget).map_err(|error| classify_error(&error)),
                    ),
                );
            }
            Query::Facts { session, to } => {
                drop(to.send(self.facts(session).map_err(|error| classify_error(&error))));
            }
            Query::Holdings { session, node, to } => {
                drop(to.send(self.holdings(session, node).map_err(|error| classify_error(&error))));
            }
            Query::IsAlive { node, to } => {
                drop(to.send(self.is_alive(node).map_err(|error| classify_error(&error))));
            }
            Query::ReachedLimit { principal, rules, to } => {
                drop(to.send(self.reached_limit(&principal, &rules).map_err(|error| classify_error(&error))));
            }
            Query::EvictionSample { requester, of, from, to } => {
                let sample = self.eviction_sample(&requester, of.as_ref(), from);
                drop(to.send(sample.map_err(|error| classify_error(&error))));
            }
            // Reads one row, which exists in every readable file.
            Query::Ping { to } => {
                drop(to.send(self.usage().map(drop).map_err(|error| classify_error(&error))));
            }
            Query::Usage { to } => drop(to.send(self.usage().map_err(|error| classify_error(&error)))),
        }
    }

    fn read(
        &mut self,
        session: SessionId,
        stream: StreamNo,
        after: u64,
        budget: u64,
    ) -> rusqlite::Result<Read> {
        self.statements.begin.execute([])?;
        let read = self.read_in_transaction(session, stream, after, budget);
        self.statements.end.execute([])?;
        read
    }

    fn read_in_transaction(
        &mut self,
        session: SessionId,
        no: StreamNo,
        after: u64,
        budget: u64,
    ) -> rusqlite::Result<Read> {
        let find = self
            .statements
            .find
            .query_row([session.as_bytes()], |row| Ok((row.get::<_, i64>(0)?, number(row, 1)?)));
        let Some((key, next_stream)) = find.optional()? else { return Ok(Read::NoSession) };
        let found = self.statements.stream.query_row([key, int(no.0)], |row| {
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
            stream.events.extend(answer);
        }
        Ok(stream.read(after, budget))
    }

    /// Reads the events after a position, and one event beyond the budget, which shows that more
    /// follow.
    fn fetch(
        &mut self,
        key: i64,
        no: StreamNo,
        after: u64,
        budget: u64,
        stream: &mut Stream,
    ) -> rusqlite::Result<()> {
        let mut rows = self.statements.events.query([key, int(no.0), int(after)])?;
        let mut size = 0;
        while let Some(row) = rows.next()? {
            let mut entry = event(row, 0)?;
            size += u64::from(entry.size);
            let beyond = size > budget && !stream.events.is_empty();
            if !beyond {
                entry.payload = Some(row.get::<_, Column<_>>(3)?.0);
            }
            stream.events.push_back(entry);
            if beyond {
                break;
            }
        }
        Ok(())
    }

    fn facts(&mut self, session: SessionId) -> rusqlite::Result<Option<Arc<Facts>>> {
        self.statements
            .facts
            .query_row([session.as_bytes()], |row| facts(session, row, 0))
            .optional()
            .map(|found| found.map(Arc::new))
    }

    fn holdings(&mut self, session: SessionId, node: NodeId) -> rusqlite::Result<Holdings> {
        self.statements.begin.execute([])?;
        let holdings = self.holdings_in_transaction(session, node);
        self.statements.end.execute([])?;
        holdings
    }

    fn holdings_in_transaction(&mut self, session: SessionId, node: NodeId) -> rusqlite::Result<Holdings> {
        let found = self
            .statements
            .find_open
            .query_row([session.as_bytes()], |row| Ok((row.get::<_, i64>(0)?, time(row, 1)?)));
        let Some((key, detached_at)) = found.optional()? else { return Ok(Holdings::NoSession) };
        let which = [key, int(node.0)];
        let rows = self.statements.calls_of_node.query_map(which, |row| {
            let (call, id): (_, RequestId) = (CallNo(number(row, 0)?), row.get::<_, Column<_>>(1)?.0);
            let (stream, response_only) = (StreamNo(number(row, 2)?), row.get(3)?);
            let (request, reassignable) =
                (optional(row, 4)?, row.get::<_, Option<bool>>(5)?.unwrap_or_default());
            let forwarded_call = |request| ForwardedCall {
                call,
                id: id.clone(),
                stream,
                response_only,
                request,
                reassignable,
            };
            let forwarded_call = request.map(forwarded_call);
            Ok(((call, id), forwarded_call))
        })?;
        let calls: Vec<((CallNo, RequestId), Option<ForwardedCall>)> = rows.collect::<Result<_, _>>()?;
        let (calls, forwarded): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let rows = self
            .statements
            .server_requests_of_node
            .query_map(which, |row| Ok((ServerRequestNo(number(row, 0)?), optional(row, 1)?)))?;
        let rows: Vec<(ServerRequestNo, Option<Bytes>)> = rows.collect::<Result<_, _>>()?;
        let connections = self
            .statements
            .connections_of_node
            .query_map(which, |row| Ok((StreamNo(number(row, 0)?), ConnNo(number(row, 1)?))))?;
        Ok(Holdings::Held {
            calls,
            forwarded: forwarded.into_iter().flatten().collect(),
            server_requests: rows.iter().map(|(server_request, _)| *server_request).collect(),
            answers: rows
                .into_iter()
                .filter_map(|(server_request, answer)| Some((server_request, answer?)))
                .collect(),
            connections: connections.collect::<Result<_, _>>()?,
            detached_at,
        })
    }

    fn is_alive(&mut self, node: NodeId) -> rusqlite::Result<bool> {
        let listed = self.statements.node.exists([int(node.0)])?;
        Ok(listed && !is_dead(self.database, node))
    }

    fn reached_limit(&mut self, principal: &Principal, rules: &Rules) -> rusqlite::Result<Option<Limit>> {
        let Usage { sessions, bytes } = self.usage()?;
        let own =
            self.statements.sessions_of.query_row([principal.as_str()], |row| number(row, 0)).optional()?;
        let shared_usage = SharedUsage { store_bytes: Some(bytes), principal_bytes: None };
        Ok(if sessions >= rules.limits.sessions {
            Some(Limit::Sessions)
        } else if own.unwrap_or_default() >= rules.limits.sessions_per_principal {
            Some(Limit::SessionsPerPrincipal)
        } else {
            shared_usage.exceeded_limit(&rules.limits)
        })
    }

    fn eviction_sample(
        &mut self,
        requester: &Principal,
        of: Option<&Principal>,
        from: SessionId,
    ) -> rusqlite::Result<EvictionSample> {
        let held = |row: &Row<'_>| Ok((Principal::new(row.get::<_, String>(0)?), number(row, 1)?));
        let own =
            self.statements.sessions_of.query_row([requester.as_str()], |row| number(row, 0)).optional()?;
        let largest = self.statements.largest_principal.query_row([], held).optional()?;
        let most = int(EvictionSample::MAX_PRINCIPALS);
        let principals = self.statements.count_principals.query_row([most], |row| number(row, 0))?;
        let open = self.usage()?.sessions;
        let statements = match of {
            None => [&mut self.statements.sample_from, &mut self.statements.sample_up_to],
            Some(_) => [&mut self.statements.sample_of_from, &mut self.statements.sample_of_up_to],
        };
        let mut sessions = Vec::new();
        for statement in statements {
            let rest = int((EvictionSample::SIZE - sessions.len()) as u64);
            let rows = match of {
                None => statement.query_map(params![from.as_bytes(), rest], sampled_session)?,
                Some(of) => {
                    statement.query_map(params![from.as_bytes(), rest, of.as_str()], sampled_session)?
                }
            };
            sessions.extend(rows.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        Ok(EvictionSample { sessions, open, principals, own: own.unwrap_or_default(), largest })
    }

    fn usage(&mut self) -> rusqlite::Result<Usage> {
        self.statements
            .usage
            .query_row([], |row| Ok(Usage { sessions: number(row, 0)?, bytes: byte_count(row, 1)? }))
    }
}

fn sampled_session(row: &Row<'_>) -> rusqlite::Result<SampledSession> {
    Ok(SampledSession {
        id: row.get::<_, Column<_>>(0)?.0,
        principal: Principal::new(row.get::<_, String>(1)?),
        last_use: LastUse { calls: number(row, 2)?, at: row.get::<_, Column<_>>(3)?.0 },
        held_by_principal: optional(row, 4)?.unwrap_or_default(),
    })
}

/// Reads a count of bytes. If an older release has written to the file, the count may be too low,
/// even negative.
fn byte_count(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(at)?).unwrap_or_default())
}
