//! Reads the annotations of tools: from the record in the store, or else from the server with
//! `tools/list`. What is read goes to the cache ([`ToolAnnotations`](crate::tool_annotations)).

use std::sync::Arc;
use std::time::Duration;

use steadfast_client::{Answer, Notification};
use steadfast_engine::{Bytes, Engine, Incoming, PrincipalRecord, SessionHandle, StateError, Time};
use steadfast_wire::members::Members;
use steadfast_wire::planted;
use steadfast_wire::rpc::json_string;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::link::Link;
use crate::seat::Seat;
use crate::tool_annotations::{
    CACHE_LIFETIME, IdempotentTools, LIFETIME, Lookup, REFRESH_AFTER, ReadResult, Stored,
    is_idempotent_method,
};
use crate::turns::Turn;
use crate::upstream::Shared;

/// What the record is about. It is part of the record's id, so it never changes.
const SUBJECT: &str = "tool annotations";

/// How long a call waits for a read, how long the server may take to list its tools, and how long that may
/// wait for its turn; unless `timeouts.control` is shorter.
const LONGEST_READ: Duration = Duration::from_secs(10);

/// How often a read begins anew because the list has changed meanwhile.
const MAX_READS: usize = 3;

/// How often a call waits for the read of another session that ends before it is done.
const MAX_JOINS: usize = 3;

/// How often a write is tried when other nodes write as well.
const MAX_WRITES: usize = 16;

/// Why there is no list.
enum NoList {
    /// The server did not answer in time, or not with a list; or the store failed.
    Failed,
    /// The server does not declare the capability `tools`.
    NotOffered,
    /// Another node runs the calls of this session, or the session has ended.
    NotHere,
}

impl Shared {
    /// Whether a request of this session is idempotent. `None`: its tool's annotations have to be read.
    pub(crate) fn is_idempotent(
        &self,
        session: &SessionHandle,
        method: &str,
        params: Option<&str>,
    ) -> Option<bool> {
        if planted("retry-unsafe") {
            return Some(true);
        }
        if method != "tools/call" {
            return Some(is_idempotent_method(method));
        }
        let tools = self.annotations.cached(&session.facts().principal, session.engine().now())?;
        Some(tools.are_called_by(params))
    }

    /// Whether another process may repeat a call if this one dies. The credentials of a client are not
    /// kept, so calls that need them cannot be repeated. `None`: annotations have to be read.
    pub(crate) fn may_be_repeated(&self, session: &SessionHandle, request: &Incoming) -> Option<bool> {
        if self.shows_clients() {
            return Some(false);
        }
        self.is_idempotent(session, &request.method, text_of(request.params.as_ref()))
    }
}

impl Link {
    /// Whether another process may repeat a call of `tools/call` with these parameters. Reads the
    /// annotations if they are not known.
    pub(crate) async fn calls_idempotent_tool(
        self: &Arc<Self>,
        session: &SessionHandle,
        params: Option<&Bytes>,
    ) -> bool {
        let tools = self.idempotent_tools(session).await;
        tools.is_some_and(|tools| tools.are_called_by(text_of(params)))
    }

    /// Whether a call of this process that failed may be sent again. It is asked in the call's turn, so it
    /// does not wait for a read that would wait for this turn.
    pub(crate) async fn may_be_sent_again(
        &self,
        seat: &Arc<Seat>,
        session: &SessionHandle,
        method: &str,
        params: Option<&str>,
    ) -> bool {
        match self.shared.is_idempotent(session, method, params) {
            Some(known) => known,
            None => match self.read_tools(session, Some(seat), LIFETIME).await {
                ReadResult::Known(tools) => tools.are_called_by(params),
                ReadResult::Failed | ReadResult::Abandoned => false,
            },
        }
    }

    /// Starts to read the annotations before the first call needs them.
    pub(crate) fn read_tools_ahead(self: &Arc<Self>, session: &SessionHandle) {
        let (link, session) = (Arc::clone(self), session.clone());
        if link.keeps_record(session.engine()) {
            Arc::clone(session.engine()).spawn(async move { drop(link.idempotent_tools(&session).await) });
        }
    }

    /// Has the annotations read again after a call, in the call's turn, if they have become old.
    pub(crate) fn refresh_tools(self: &Arc<Self>, turn: Turn, session: &SessionHandle) {
        let engine = session.engine();
        if !self.keeps_record(engine) {
            return;
        }
        let due = self.shared.annotations.refresh(&self.facts.principal, engine.now());
        let (Some(sender), Some(seat)) = (due, self.lanes[turn.lane].seat()) else { return };
        let (link, session) = (Arc::clone(self), session.clone());
        Arc::clone(engine).spawn(async move {
            let result = link.read_tools(&session, Some(&seat), REFRESH_AFTER).await;
            sender.send_replace(Some(result));
            drop(turn);
        });
    }

    /// Learns from a list that the client asked for, if it is complete. `generation` is from before it was
    /// asked for. The record is left to reads of our own: what other nodes know may be newer.
    pub(crate) fn learn_tools(
        &self,
        session: &SessionHandle,
        params: Option<&str>,
        result: &Bytes,
        generation: u64,
    ) {
        let mut tools = IdempotentTools::default();
        let has_cursor = params.is_some_and(|params| params.contains("\"cursor\""));
        let page = tools.add_page(result, self.shared.config.limits.tools);
        if has_cursor || page != Some(None) {
            return;
        }
        let now = session.engine().now();
        self.use_tools(session.engine(), &Arc::new(tools), generation, now);
    }

    /// Hears what concerns all sessions of a principal, on whatever stream it came.
    pub(crate) fn note(&self, notification: &Notification) {
        if notification.method == "notifications/tools/list_changed" {
            self.invalidate_tools();
        }
    }

    /// The server's tools may have changed.
    pub(crate) fn invalidate_tools(&self) {
        let session = self.session().filter(|session| self.keeps_record(session.engine()));
        let (shared, principal) = (Arc::clone(&self.shared), self.facts.principal.clone());
        if !shared.annotations.invalidate(&principal, session.is_some()) {
            return;
        }
        let Some(session) = session else { return };
        let record = session.engine().record(SUBJECT, &principal);
        session.engine().spawn(async move {
            loop {
                invalidate(&record).await;
                if !shared.annotations.invalidated(&principal) {
                    return;
                }
            }
        });
    }

    /// The annotations, from wherever they are. Concurrent callers share one read.
    async fn idempotent_tools(self: &Arc<Self>, session: &SessionHandle) -> Option<Arc<IdempotentTools>> {
        for _ in 0..MAX_JOINS {
            let now = session.engine().now();
            let mut reading = match self.shared.annotations.look_up(&self.facts.principal, now) {
                Lookup::Known(tools) => return Some(tools),
                Lookup::Unavailable => return None,
                Lookup::Join(reading) => reading,
                Lookup::Read(sender) => {
                    let reading = sender.subscribe();
                    let (link, session) = (Arc::clone(self), session.clone());
                    // It goes on if the call that began it does not.
                    Arc::clone(session.engine()).spawn(async move {
                        let result = link.read_tools(&session, None, LIFETIME).await;
                        sender.send_replace(Some(result));
                    });
                    reading
                }
            };
            let read = tokio::time::timeout(self.longest_read(), reading.wait_for(Option::is_some)).await;
            match read.map(|read| read.map(|result| result.clone())) {
                Ok(Ok(Some(ReadResult::Known(tools)))) => return Some(tools),
                Ok(Ok(Some(ReadResult::Failed))) | Err(_) => return None,
                Ok(Ok(Some(ReadResult::Abandoned) | None) | Err(_)) => {}
            }
        }
        None
    }

    /// Reads the annotations: from the record if that is not older than `max_age`, or else from the server.
    /// `seat`: where to ask, for a caller that has a turn there.
    async fn read_tools(
        &self,
        session: &SessionHandle,
        seat: Option<&Arc<Seat>>,
        max_age: Duration,
    ) -> ReadResult {
        let begun = Instant::now();
        let read = self.read_until_current(session, seat, max_age).await;
        let (annotations, principal) = (&self.shared.annotations, &self.facts.principal);
        let now = session.engine().now();
        match read {
            Ok(tools) => ReadResult::Known(tools),
            Err(NoList::Failed) if !self.is_closed() => {
                tracing::warn!(
                    session = self.short(),
                    "could not read the annotations of the server's tools; until they are read, calls \
                     count as not idempotent"
                );
                annotations.failed(principal, begun.elapsed(), now);
                ReadResult::Failed
            }
            Err(NoList::NotOffered) => {
                annotations.has_none(principal, now);
                ReadResult::Failed
            }
            Err(NoList::Failed | NoList::NotHere) => ReadResult::Abandoned,
        }
    }

    async fn read_until_current(
        &self,
        session: &SessionHandle,
        seat: Option<&Arc<Seat>>,
        max_age: Duration,
    ) -> Result<Arc<IdempotentTools>, NoList> {
        let (engine, principal) = (session.engine(), &self.facts.principal);
        let record = self.keeps_record(engine).then(|| engine.record(SUBJECT, principal));
        for _ in 0..MAX_READS {
            self.shared.annotations.record_is_written(principal).await;
            let generation = self.shared.annotations.generation(principal);
            let stored = match &record {
                Some(record) => load(record).await.map_err(|_| NoList::Failed)?,
                None => None,
            };
            let version = stored.as_ref().map(|(_, version)| *version);
            let now = engine.now();
            let usable = stored.and_then(|(stored, _)| Some((stored.read_within(max_age, now)?, stored)));
            let (read_at, tools) = match usable {
                Some((read_at, stored)) => (read_at, stored.idempotent),
                None => {
                    let tools = self.list_tools(seat).await?;
                    let written = match &record {
                        Some(record) => store(record, version, &Stored::new(&tools, now)).await,
                        None => Ok(()),
                    };
                    match written {
                        Ok(()) => {}
                        // Another node has read the list as well, or has heard that it changed.
                        Err(StateError::Conflict { .. }) => continue,
                        Err(error) => {
                            tracing::warn!(session = self.short(), %error, "other nodes cannot see the annotations of tools");
                        }
                    }
                    (now, tools)
                }
            };
            let tools = Arc::new(tools);
            if self.use_tools(engine, &tools, generation, read_at) {
                return Ok(tools);
            }
        }
        Err(NoList::Failed)
    }

    /// Puts annotations into the cache. Gives whether they are not out of date.
    fn use_tools(
        &self,
        engine: &Engine,
        tools: &Arc<IdempotentTools>,
        generation: u64,
        read_at: Time,
    ) -> bool {
        let end = read_at.plus(LIFETIME);
        let is_shared = self.keeps_record(engine);
        let cached_until = if is_shared { end.min(engine.now().plus(CACHE_LIFETIME)) } else { end };
        let annotations = &self.shared.annotations;
        annotations.set(&self.facts.principal, tools, generation, read_at, cached_until)
    }

    async fn list_tools(&self, seat: Option<&Arc<Seat>>) -> Result<IdempotentTools, NoList> {
        let (_turn, seat) = match seat {
            Some(seat) => (None, Arc::clone(seat)),
            None => {
                if self.shared.has_one_runner() && !self.lease.is_ours() {
                    return Err(NoList::NotHere);
                }
                // A server that takes one call at a time takes no list beside it.
                let is_here = CancellationToken::new();
                let turn = tokio::time::timeout(self.longest_read(), self.turns().next(&is_here)).await;
                let turn = turn.map_err(|_| NoList::Failed)?.map_err(|_| NoList::Failed)?;
                // Takes as long as for a call: a program may have to start.
                let seat = self.seated(turn.lane).await.map_err(|_| NoList::Failed)?;
                if !offers_tools(&seat) {
                    return Err(NoList::NotOffered);
                }
                (Some(turn), seat)
            }
        };
        let list = tokio::time::timeout(self.longest_read(), self.list_pages(&seat)).await;
        list.unwrap_or(Err(NoList::Failed))
    }

    async fn list_pages(&self, seat: &Seat) -> Result<IdempotentTools, NoList> {
        let limits = &self.shared.config.limits;
        let (mut tools, mut cursor) = (IdempotentTools::default(), None::<String>);
        for _ in 0..limits.pages {
            let params = cursor.as_ref().map(|cursor| format!(r#"{{"cursor":{}}}"#, json_string(cursor)));
            let call = seat.client.call("tools/list", params.as_deref()).map_err(|_| NoList::Failed)?;
            let Ok(Answer::Result(page)) = call.answer().await else { return Err(NoList::Failed) };
            cursor = tools.add_page(&page, limits.tools).ok_or(NoList::Failed)?;
            if cursor.is_none() {
                break;
            }
        }
        // Tools on pages beyond the limit count as not idempotent.
        Ok(tools)
    }

    fn longest_read(&self) -> Duration {
        LONGEST_READ.min(self.shared.config.timeouts.control)
    }

    /// Whether other processes use what this one reads.
    fn keeps_record(&self, engine: &Engine) -> bool {
        engine.shares_its_store() && !self.shared.shows_clients()
    }
}

/// Parameters came as JSON text, so they are UTF-8.
fn text_of(params: Option<&Bytes>) -> Option<&str> {
    params.and_then(|params| std::str::from_utf8(params).ok())
}

/// Whether the server declares the capability `tools`.
fn offers_tools(seat: &Seat) -> bool {
    let server = seat.client.server();
    let server = std::str::from_utf8(&server).ok().and_then(|server| Members::parse(server).ok());
    let capabilities = server.as_ref().and_then(|server| server.get("capabilities"));
    capabilities.is_some_and(|all| Members::parse(all).is_ok_and(|all| all.get("tools").is_some()))
}

/// The record and its version. A record that this version cannot read counts as invalid.
async fn load(record: &PrincipalRecord) -> Result<Option<(Stored, u64)>, StateError> {
    let value = record.load().await?;
    Ok(value.map(|value| (serde_json::from_slice(&value.bytes).unwrap_or_default(), value.version)))
}

async fn store(record: &PrincipalRecord, version: Option<u64>, stored: &Stored) -> Result<(), StateError> {
    // Numbers and strings always serialise.
    record.store(version, serde_json::to_vec(stored).unwrap_or_default().into()).await
}

/// Writes a record without annotations, even if there is none: a node that reads the server's list now
/// finds another version than it saw before, and does not write what it read.
async fn invalidate(record: &PrincipalRecord) {
    for _ in 0..MAX_WRITES {
        let written = match load(record).await {
            Ok(found) => store(record, found.map(|(_, version)| version), &Stored::default()).await,
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => return,
            Err(StateError::Conflict { .. }) => {}
            Err(error) => {
                return tracing::warn!(%error, "other nodes are not told that the server's tools have changed");
            }
        }
    }
    tracing::warn!("other nodes are not told that the server's tools have changed: too many write at once");
}
