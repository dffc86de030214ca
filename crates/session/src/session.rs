//! The session: its tables, and `apply`, the only way to change them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_wire::{Reason, RequestId};

use crate::changes::Changes;
use crate::command::{Closed, Command, Outcome, Touched};
use crate::ids::{CallNo, ServerRequestNo, StreamNo, Time};
use crate::lifecycle_events::{CloseReason, Lifecycle};
use crate::limits::Rules;
use crate::rows::{Call, Facts, Meta, ServerRequest, SessionState, Streams};
use crate::shared_usage::SharedUsage;

/// One client's session: a few small tables and a log per stream.
#[derive(Clone, Debug)]
pub struct Session {
    facts: Arc<Facts>,
    pub(crate) meta: Meta,
    pub(crate) calls: BTreeMap<CallNo, Call>,
    pub(crate) server_requests: BTreeMap<ServerRequestNo, ServerRequest>,
    pub(crate) streams: Streams,
    pub(crate) state: SessionState,
    // The fields below are indexes and sums over the tables. `restore` rebuilds them.
    /// The calls by client id.
    pub(crate) by_id: BTreeSet<(RequestId, CallNo)>,
    /// The number of open streams with a connection.
    pub(crate) attached: usize,
    /// The finished streams, by the time when they finished.
    pub(crate) finished: BTreeSet<(Time, StreamNo)>,
    /// Those of `finished` that are fully delivered.
    pub(crate) fully_delivered: BTreeSet<(Time, StreamNo)>,
    /// The bytes of all streams.
    pub(crate) bytes: u64,
    pub(crate) state_bytes: u64,
    pub(crate) kept_answer_bytes: u64,
    pub(crate) kept_request_bytes: u64,
}

impl Session {
    /// Creates a new session. The caller must report [`Lifecycle::Opened`].
    pub fn open(facts: Arc<Facts>) -> Self {
        // Stream 0 is reserved for the first standalone stream, which is created on demand.
        let meta = Meta { last_active: facts.opened_at, next_stream: 1, ..Meta::default() };
        Self::restore(facts, meta, BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new())
    }

    /// Rebuilds a session from the rows of a store.
    pub fn restore(
        facts: Arc<Facts>,
        meta: Meta,
        calls: BTreeMap<CallNo, Call>,
        server_requests: BTreeMap<ServerRequestNo, ServerRequest>,
        streams: Streams,
        state: SessionState,
    ) -> Self {
        let by_id = calls.iter().map(|(no, call)| (call.id.clone(), *no)).collect();
        let attached =
            streams.values().filter(|stream| stream.is_open() && stream.attached.is_some()).count();
        let finished: BTreeSet<_> =
            streams.iter().filter_map(|(no, stream)| stream.finished_at.map(|at| (at, *no))).collect();
        let fully_delivered =
            finished.iter().copied().filter(|(_, no)| streams[no].is_fully_delivered()).collect();
        let bytes = streams.values().map(|stream| stream.bytes).sum();
        let state_bytes = state.iter().map(|(key, value)| (key.len() + value.bytes.len()) as u64).sum();
        let kept_answer_bytes = server_requests.values().map(ServerRequest::kept_bytes).sum();
        let kept_request_bytes = calls.values().map(Call::kept_bytes).sum();
        Self {
            facts,
            meta,
            calls,
            server_requests,
            streams,
            state,
            by_id,
            attached,
            finished,
            fully_delivered,
            bytes,
            state_bytes,
            kept_answer_bytes,
            kept_request_bytes,
        }
    }

    /// Applies one command and adds its changes to `changes`.
    ///
    /// Use this function in a store that does not count the bytes of all its sessions.
    pub fn apply(&mut self, command: Command, now: Time, rules: &Rules, changes: &mut Changes) -> Outcome {
        self.apply_with_usage(command, now, rules, SharedUsage::default(), changes)
    }

    /// Applies one command like [`apply`](Self::apply), in a store that counts the bytes of all its
    /// sessions.
    pub fn apply_with_usage(
        &mut self,
        command: Command,
        now: Time,
        rules: &Rules,
        shared_usage: SharedUsage,
        changes: &mut Changes,
    ) -> Outcome {
        match command {
            Command::Touch(_) => Outcome::Touch(self.touch(now, rules, shared_usage, changes)),
            Command::Close(c) => Outcome::Close(self.close(c.reason, now, rules, changes)),
            Command::Begin(c) => Outcome::Begin(self.begin(c, now, rules, shared_usage, changes)),
            Command::Start(c) => Outcome::Start(self.start(&c, changes)),
            Command::Renotify(c) => Outcome::Renotify(self.renotify(&c, changes)),
            Command::Forward(c) => Outcome::Forward(self.forward(&c, rules, changes)),
            Command::Append(c) => Outcome::Append(self.append(c, rules, shared_usage, changes)),
            Command::Finish(c) => Outcome::Finish(self.finish(c, now, rules, changes)),
            Command::Cancel(c) => Outcome::Cancel(self.cancel(&c, now, rules, changes)),
            Command::FailNode(c) => Outcome::FailNode(self.fail_node(&c, now, rules, changes)),
            Command::OpenServerRequest(c) => {
                Outcome::OpenServerRequest(self.open_server_request(&c, rules, changes))
            }
            Command::Answer(c) => Outcome::Answer(self.answer(&c, now, rules, changes)),
            Command::Collect(c) => Outcome::Collect(self.collect(&c, changes)),
            Command::Withdraw(c) => Outcome::Withdraw(self.withdraw(c.server_request, rules, changes)),
            Command::Attach(c) => Outcome::Attach(self.attach(&c, now, rules, changes)),
            Command::Detach(c) => Outcome::Detach(self.detach(&c, now, changes)),
            Command::Deliver(c) => Outcome::Deliver(self.deliver(&c, changes)),
            Command::PutState(c) => Outcome::PutState(self.put_state(c, rules, changes)),
            Command::Release(c) => Outcome::Release(self.release(&c, changes)),
            Command::GetState(c) => Outcome::GetState(self.get_state(&c)),
            Command::Evict(c) => Outcome::Evict(self.evict(&c, now, rules, changes)),
            Command::Sweep(_) => Outcome::Sweep(self.sweep(now, rules, changes)),
        }
    }

    pub fn facts(&self) -> &Arc<Facts> {
        &self.facts
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    pub fn calls(&self) -> &BTreeMap<CallNo, Call> {
        &self.calls
    }

    pub fn server_requests(&self) -> &BTreeMap<ServerRequestNo, ServerRequest> {
        &self.server_requests
    }

    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// Returns the bytes of all streams.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_open(&self) -> bool {
        self.meta.closed.is_none()
    }

    /// Returns the bytes of the session state, keys and values together.
    pub fn state_bytes(&self) -> u64 {
        self.state_bytes
    }

    /// Returns the bytes of stored answers to server requests.
    pub fn kept_answer_bytes(&self) -> u64 {
        self.kept_answer_bytes
    }

    /// Returns the bytes of stored requests of calls.
    pub fn kept_request_bytes(&self) -> u64 {
        self.kept_request_bytes
    }

    /// Drops the payload of an event. Stores that hold payloads elsewhere call this function to
    /// save memory.
    pub fn drop_payload(&mut self, stream: StreamNo, seq: u64) {
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        if let Ok(at) = stream.events.binary_search_by_key(&seq, |event| event.seq) {
            stream.events[at].payload = None;
        }
    }

    fn touch(
        &mut self,
        now: Time,
        rules: &Rules,
        shared_usage: SharedUsage,
        changes: &mut Changes,
    ) -> Touched {
        if !self.is_open() {
            return Touched::NoSession;
        }
        self.mark_active(now, rules, changes);
        shared_usage.exceeded_limit(&rules.limits).map_or(Touched::Touched, Touched::OverLimit)
    }

    pub(crate) fn close(
        &mut self,
        reason: CloseReason,
        now: Time,
        rules: &Rules,
        changes: &mut Changes,
    ) -> Closed {
        if !self.is_open() {
            return Closed::NoSession;
        }
        self.fail_calls(
            |_| true,
            Reason::SessionClosed,
            &format!("The session ended ({reason})."),
            now,
            rules,
            changes,
        );
        let server_requests: Vec<ServerRequestNo> = self.server_requests.keys().copied().collect();
        for server_request in server_requests {
            self.drop_server_request(server_request, changes);
        }
        let open: Vec<StreamNo> =
            self.streams.iter().filter(|(_, stream)| stream.is_open()).map(|(no, _)| *no).collect();
        for stream in open {
            self.end_stream(stream, now, changes);
        }
        self.meta.closed = Some((reason, now));
        self.meta.detached_at = None;
        changes.meta = true;
        changes.lifecycle.push(Lifecycle::Closed(reason));
        Closed::Closed
    }

    /// Records activity, at most once per [`Timing::touch`](crate::Timing::touch).
    pub(crate) fn mark_active(&mut self, now: Time, rules: &Rules, changes: &mut Changes) {
        if now >= self.meta.last_active.plus(rules.timing.touch) {
            self.meta.last_active = now;
            changes.meta = true;
        }
    }

    /// Ends the detached state of the session, because a connection was attached.
    pub(crate) fn mark_attached(&mut self, changes: &mut Changes) {
        if self.meta.detached_at.take().is_some() {
            changes.meta = true;
            changes.lifecycle.push(Lifecycle::Reattached);
        }
    }
}
