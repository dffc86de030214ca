//! Reads tool annotations into the [cache](super::cache): from the record in the store, or else
//! from the server with `tools/list`.

use std::sync::Arc;
use std::time::Duration;

use steadfast_client::{Answer, Notification};
use steadfast_engine::{Bytes, Engine, IncomingMessage, PrincipalRecord, SessionHandle, StateError, Time};
use steadfast_wire::idempotent_methods::is_idempotent_method;
use steadfast_wire::raw_json;
use steadfast_wire::rpc::json_string;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call::concurrency::CallPermit;
use crate::call::tool_annotations::cache::{
    ANNOTATIONS_TTL, CACHE_TTL, Lookup, REFRESH_AFTER, ReadResult, SharedRecord, Stored,
};
use crate::call::tool_annotations::idempotent_tools::IdempotentTools;
use crate::placement::upstream_session::UpstreamSession;
use crate::session::client_session::ClientSession;
use crate::upstream::Shared;

/// The subject of the record. It is part of the record's id, so it never changes.
const SUBJECT: &str = "tool annotations";

/// How long a call waits for a read, how long the server may take to list its tools, and how long a
/// read waits for its permit. `timeouts.control` applies if it is shorter.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a read starts again because the list has changed meanwhile.
const MAX_READS: usize = 3;

/// How often a call waits for the read of another session that ends before the read is done.
const MAX_JOINS: usize = 3;

/// How often a write is tried when other nodes write as well.
const MAX_WRITES: usize = 16;

/// Why there is no list.
enum NoList {
    /// The server did not answer in time, or not with a list, or the store failed.
    Failed,
    /// The server does not declare the capability `tools`.
    NotOffered,
    /// Another node runs the calls of this session, or the session has ended.
    NotHere,
}

impl Shared {
    /// Returns whether a request of this session is idempotent. `None`: the annotations must be
    /// read.
    pub(crate) fn is_idempotent(
        &self,
        session: &SessionHandle,
        method: &str,
        params: Option<&str>,
    ) -> Option<bool> {
        if method != "tools/call" {
            return Some(is_idempotent_method(method));
        }
        let tools = self.annotations.cached(&session.facts().principal, session.engine().now())?;
        Some(tools.are_called_by(params))
    }

    /// Returns whether another node may run a call again if this node dies. Forwarded credentials
    /// are not stored, so calls that need them cannot run again. `None`: the annotations must be
    /// read.
    pub(crate) fn may_be_reassigned(
        &self,
        session: &SessionHandle,
        request: &IncomingMessage,
    ) -> Option<bool> {
        if self.forwards_credentials() {
            return Some(false);
        }
        self.is_idempotent(session, &request.method, text_of(request.params.as_ref()))
    }
}

impl ClientSession {
    /// Returns true if a `tools/call` with these parameters names an idempotent tool. Reads the
    /// annotations if they are not known.
    pub(crate) async fn calls_idempotent_tool(
        self: &Arc<Self>,
        session: &SessionHandle,
        params: Option<&Bytes>,
    ) -> bool {
        let tools = self.idempotent_tools(session).await;
        tools.is_some_and(|tools| tools.are_called_by(text_of(params)))
    }

    /// Returns true if a call that failed may be sent again. The caller holds a permit, so this
    /// function does not wait for a read that would wait for that permit.
    pub(crate) async fn may_be_retried(
        &self,
        upstream_session: &Arc<UpstreamSession>,
        session: &SessionHandle,
        method: &str,
        params: Option<&str>,
    ) -> bool {
        match self.shared.is_idempotent(session, method, params) {
            Some(known) => known,
            None => match self.read_tools(session, Some(upstream_session), ANNOTATIONS_TTL).await {
                ReadResult::Known(tools) => tools.are_called_by(params),
                ReadResult::Failed | ReadResult::Abandoned => false,
            },
        }
    }

    /// Starts to read the annotations before the first call needs them.
    pub(crate) fn read_tools_ahead(self: &Arc<Self>, session: &SessionHandle) {
        let (client_session, session) = (Arc::clone(self), session.clone());
        if client_session.keeps_record(session.engine()) {
            Arc::clone(session.engine())
                .spawn(async move { drop(client_session.idempotent_tools(&session).await) });
        }
    }

    /// Reads the annotations again after a call if they are old, under the permit of the call.
    pub(crate) fn refresh_tools(self: &Arc<Self>, permit: CallPermit, session: &SessionHandle) {
        let engine = session.engine();
        if !self.keeps_record(engine) {
            return;
        }
        let due = self.shared.annotations.refresh(&self.facts.principal, engine.now());
        let (Some(sender), Some(upstream_session)) = (due, self.lanes[permit.lane].upstream_session()) else {
            return;
        };
        let (client_session, session) = (Arc::clone(self), session.clone());
        Arc::clone(engine).spawn(async move {
            let result = client_session.read_tools(&session, Some(&upstream_session), REFRESH_AFTER).await;
            sender.send_replace(Some(result));
            drop(permit);
        });
    }

    /// Caches the annotations in a list that the client asked for, if the list is complete.
    /// `generation` must be from before the request. Does not change the record in the store: other
    /// nodes may have written a newer one.
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

    /// Handles a notification that concerns all sessions of a principal, from any stream.
    pub(crate) fn inspect_notification(&self, notification: &Notification) {
        if notification.method == "notifications/tools/list_changed" {
            self.invalidate_tools();
        }
    }

    /// Drops the annotations, because the server's tools may have changed.
    pub(crate) fn invalidate_tools(&self) {
        let session = self.session().filter(|session| self.keeps_record(session.engine()));
        let (shared, principal) = (Arc::clone(&self.shared), self.facts.principal.clone());
        let record = if session.is_some() { SharedRecord::Kept } else { SharedRecord::None };
        if !shared.annotations.invalidate(&principal, record) {
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

    /// Returns the annotations from the cache, the store or the server. Concurrent callers share
    /// one read.
    async fn idempotent_tools(self: &Arc<Self>, session: &SessionHandle) -> Option<Arc<IdempotentTools>> {
        for _ in 0..MAX_JOINS {
            let now = session.engine().now();
            let mut reading = match self.shared.annotations.look_up(&self.facts.principal, now) {
                Lookup::Known(tools) => return Some(tools),
                Lookup::Unavailable => return None,
                Lookup::Join(reading) => reading,
                Lookup::Read(sender) => {
                    let reading = sender.subscribe();
                    let (client_session, session) = (Arc::clone(self), session.clone());
                    // The read continues if the call that started it is cancelled.
                    Arc::clone(session.engine()).spawn(async move {
                        let result = client_session.read_tools(&session, None, ANNOTATIONS_TTL).await;
                        sender.send_replace(Some(result));
                    });
                    reading
                }
            };
            let read = tokio::time::timeout(self.read_timeout(), reading.wait_for(Option::is_some)).await;
            match read.map(|read| read.map(|result| result.clone())) {
                Ok(Ok(Some(ReadResult::Known(tools)))) => return Some(tools),
                Ok(Ok(Some(ReadResult::Failed))) | Err(_) => return None,
                Ok(Ok(Some(ReadResult::Abandoned) | None) | Err(_)) => {}
            }
        }
        None
    }

    /// Reads the annotations: from the record if it is at most `max_age` old, or else from the
    /// server. `upstream_session` is for callers that hold a permit for it.
    async fn read_tools(
        &self,
        session: &SessionHandle,
        upstream_session: Option<&Arc<UpstreamSession>>,
        max_age: Duration,
    ) -> ReadResult {
        let begun = Instant::now();
        let read = self.read_until_current(session, upstream_session, max_age).await;
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
                annotations.not_offered(principal, now);
                ReadResult::Failed
            }
            Err(NoList::Failed | NoList::NotHere) => ReadResult::Abandoned,
        }
    }

    async fn read_until_current(
        &self,
        session: &SessionHandle,
        upstream_session: Option<&Arc<UpstreamSession>>,
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
                    let tools = self.list_tools(upstream_session).await?;
                    let written = match &record {
                        Some(record) => store(record, version, &Stored::new(&tools, now)).await,
                        None => Ok(()),
                    };
                    match written {
                        Ok(()) => {}
                        // Another node has written the list as well, or has invalidated the record.
                        Err(StateError::Conflict { .. }) => continue,
                        Err(error) => {
                            tracing::warn!(session = self.short(), %error, "could not store the annotations of tools for other nodes");
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

    /// Caches annotations. Returns false if they were invalidated since they were read.
    fn use_tools(
        &self,
        engine: &Engine,
        tools: &Arc<IdempotentTools>,
        generation: u64,
        read_at: Time,
    ) -> bool {
        let end = read_at.plus(ANNOTATIONS_TTL);
        let is_shared = self.keeps_record(engine);
        let cached_until = if is_shared { end.min(engine.now().plus(CACHE_TTL)) } else { end };
        let annotations = &self.shared.annotations;
        annotations.set(&self.facts.principal, tools, generation, read_at, cached_until)
    }

    async fn list_tools(
        &self,
        upstream_session: Option<&Arc<UpstreamSession>>,
    ) -> Result<IdempotentTools, NoList> {
        let (_turn, upstream_session) = match upstream_session {
            Some(upstream_session) => (None, Arc::clone(upstream_session)),
            None => {
                if self.requires_single_node() && !self.lease.is_held_here() {
                    return Err(NoList::NotHere);
                }
                // A list counts toward the concurrency limit like a call.
                let never = CancellationToken::new();
                let permit = tokio::time::timeout(self.read_timeout(), self.acquire_permit(&never)).await;
                let permit = permit.map_err(|_| NoList::Failed)?.map_err(|_| NoList::Failed)?;
                // Takes as long as for a call: a process may have to start.
                let upstream_session =
                    self.upstream_session_of(permit.lane).await.map_err(|_| NoList::Failed)?;
                if !offers_tools(&upstream_session) {
                    return Err(NoList::NotOffered);
                }
                (Some(permit), upstream_session)
            }
        };
        let list = tokio::time::timeout(self.read_timeout(), self.list_pages(&upstream_session)).await;
        list.unwrap_or(Err(NoList::Failed))
    }

    async fn list_pages(&self, upstream_session: &UpstreamSession) -> Result<IdempotentTools, NoList> {
        let limits = &self.shared.config.limits;
        let (mut tools, mut cursor) = (IdempotentTools::default(), None::<String>);
        for _ in 0..limits.pages {
            let params = cursor.as_ref().map(|cursor| format!(r#"{{"cursor":{}}}"#, json_string(cursor)));
            let call =
                upstream_session.client.call("tools/list", params.as_deref()).map_err(|_| NoList::Failed)?;
            let Ok(Answer::Result(page)) = call.answer().await else { return Err(NoList::Failed) };
            cursor = tools.add_page(&page, limits.tools).ok_or(NoList::Failed)?;
            if cursor.is_none() {
                break;
            }
        }
        // Tools on pages beyond the limit count as not idempotent.
        Ok(tools)
    }

    fn read_timeout(&self) -> Duration {
        READ_TIMEOUT.min(self.shared.config.timeouts.control)
    }

    /// Returns true if other nodes use the annotations that this node reads.
    fn keeps_record(&self, engine: &Engine) -> bool {
        engine.shares_store() && !self.shared.forwards_credentials()
    }
}

/// Returns the parameters as text. They were parsed as JSON, so they are UTF-8.
fn text_of(params: Option<&Bytes>) -> Option<&str> {
    params.and_then(|params| std::str::from_utf8(params).ok())
}

/// Returns true if the server declares the capability `tools`.
fn offers_tools(upstream_session: &UpstreamSession) -> bool {
    let server = upstream_session.client.server();
    std::str::from_utf8(&server).is_ok_and(|text| raw_json::get(text, &["capabilities", "tools"]).is_some())
}

/// Returns the record and its version. A record that cannot be parsed counts as invalid.
async fn load(record: &PrincipalRecord) -> Result<Option<(Stored, u64)>, StateError> {
    let value = record.load().await?;
    Ok(value.map(|value| (serde_json::from_slice(&value.bytes).unwrap_or_default(), value.version)))
}

async fn store(record: &PrincipalRecord, version: Option<u64>, stored: &Stored) -> Result<(), StateError> {
    // Numbers and strings always serialise.
    record.store(version, serde_json::to_vec(stored).unwrap_or_default().into()).await
}

/// Writes a record without annotations, even if there is none. A node that reads the server's list
/// at the moment then finds another version than before, and does not write what it has read.
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
                return tracing::warn!(%error, "could not tell other nodes that the server's tools have changed");
            }
        }
    }
    tracing::warn!(
        "could not tell other nodes that the server's tools have changed: too many concurrent writes"
    );
}
