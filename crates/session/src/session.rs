//! The session itself: its tables, and the one way to change them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_wire::RequestId;

use crate::changes::Changes;
use crate::command::{Closed, Command, Outcome, Touched};
use crate::crowd::Crowd;
use crate::ids::{AskNo, CallNo, StreamNo, Time};
use crate::lifecycle::{CloseReason, Lifecycle};
use crate::limits::Rules;
use crate::tables::{Ask, Call, Facts, Meta, State, Streams};

/// One client's conversation: a few small tables and a log per stream.
#[derive(Clone, Debug)]
pub struct Session {
    facts: Arc<Facts>,
    pub(crate) meta: Meta,
    pub(crate) calls: BTreeMap<CallNo, Call>,
    pub(crate) asks: BTreeMap<AskNo, Ask>,
    pub(crate) streams: Streams,
    pub(crate) state: State,
    // What follows is derived from the tables and rebuilt by `restore`.
    /// Which calls carry a client id.
    pub(crate) by_id: BTreeSet<(RequestId, CallNo)>,
    /// Open streams with a connection.
    pub(crate) attached: usize,
    /// Finished streams, by the time at which they finished.
    pub(crate) finished: BTreeSet<(Time, StreamNo)>,
    /// Those of them whose answer was written out.
    pub(crate) spent: BTreeSet<(Time, StreamNo)>,
    /// Bytes in all streams.
    pub(crate) bytes: u64,
    pub(crate) state_bytes: u64,
    pub(crate) kept_answer_bytes: u64,
    pub(crate) request_bytes: u64,
}

impl Session {
    /// A new session. The caller reports [`Lifecycle::Opened`].
    pub fn open(facts: Arc<Facts>) -> Self {
        // Stream 0 is the first standalone stream, made when something needs it.
        let meta = Meta { last_active: facts.opened_at, next_stream: 1, ..Meta::default() };
        Self::restore(facts, meta, BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new())
    }

    /// A session from rows that a store has kept.
    pub fn restore(
        facts: Arc<Facts>,
        meta: Meta,
        calls: BTreeMap<CallNo, Call>,
        asks: BTreeMap<AskNo, Ask>,
        streams: Streams,
        state: State,
    ) -> Self {
        let by_id = calls.iter().map(|(no, call)| (call.id.clone(), *no)).collect();
        let attached =
            streams.values().filter(|stream| stream.is_open() && stream.attached.is_some()).count();
        let finished: BTreeSet<_> =
            streams.iter().filter_map(|(no, stream)| stream.finished_at.map(|at| (at, *no))).collect();
        let spent = finished.iter().copied().filter(|(_, no)| streams[no].is_spent()).collect();
        let bytes = streams.values().map(|stream| stream.bytes).sum();
        let state_bytes = state.iter().map(|(key, value)| (key.len() + value.bytes.len()) as u64).sum();
        let kept_answer_bytes = asks.values().map(Ask::kept_bytes).sum();
        let request_bytes = calls.values().map(Call::kept_bytes).sum();
        Self {
            facts,
            meta,
            calls,
            asks,
            streams,
            state,
            by_id,
            attached,
            finished,
            spent,
            bytes,
            state_bytes,
            kept_answer_bytes,
            request_bytes,
        }
    }

    /// Applies one command, in a store that does not count what its sessions hold. What it changed is added to `changes`.
    pub fn apply(&mut self, command: Command, now: Time, rules: &Rules, changes: &mut Changes) -> Outcome {
        self.apply_among(command, now, rules, Crowd::default(), changes)
    }

    /// Applies one command, in a store that counts what its sessions hold.
    pub fn apply_among(
        &mut self,
        command: Command,
        now: Time,
        rules: &Rules,
        crowd: Crowd,
        changes: &mut Changes,
    ) -> Outcome {
        match command {
            Command::Touch(_) => Outcome::Touch(self.touch(now, rules, crowd, changes)),
            Command::Close(c) => Outcome::Close(self.close(c.reason, now, rules, changes)),
            Command::Begin(c) => Outcome::Begin(self.begin(c, now, rules, crowd, changes)),
            Command::Start(c) => Outcome::Start(self.start(&c, changes)),
            Command::Remind(c) => Outcome::Remind(self.remind(&c, changes)),
            Command::Pass(c) => Outcome::Pass(self.pass(&c, rules, changes)),
            Command::Append(c) => Outcome::Append(self.append(c, rules, crowd, changes)),
            Command::Finish(c) => Outcome::Finish(self.finish(c, now, rules, changes)),
            Command::Cancel(c) => Outcome::Cancel(self.cancel(&c, now, rules, changes)),
            Command::FailNode(c) => Outcome::FailNode(self.fail_node(&c, now, rules, changes)),
            Command::OpenAsk(c) => Outcome::OpenAsk(self.open_ask(&c, rules, changes)),
            Command::Answer(c) => Outcome::Answer(self.answer(&c, now, rules, changes)),
            Command::Collect(c) => Outcome::Collect(self.collect(&c, changes)),
            Command::Withdraw(c) => Outcome::Withdraw(self.withdraw(c.ask, rules, changes)),
            Command::Attach(c) => Outcome::Attach(self.attach(&c, now, rules, changes)),
            Command::Detach(c) => Outcome::Detach(self.detach(&c, now, changes)),
            Command::Deliver(c) => Outcome::Deliver(self.deliver(&c, changes)),
            Command::PutState(c) => Outcome::PutState(self.put_state(c, rules, changes)),
            Command::Release(c) => Outcome::Release(self.release(&c, changes)),
            Command::GetState(c) => Outcome::GetState(self.get_state(&c)),
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

    pub fn asks(&self) -> &BTreeMap<AskNo, Ask> {
        &self.asks
    }

    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Bytes that its streams hold.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_open(&self) -> bool {
        self.meta.closed.is_none()
    }

    /// Bytes of its state, keys and values together.
    pub fn state_bytes(&self) -> u64 {
        self.state_bytes
    }

    /// Bytes of answers that wait for the node of their asker.
    pub fn kept_answer_bytes(&self) -> u64 {
        self.kept_answer_bytes
    }

    /// Bytes of requests that are kept with their calls.
    pub fn kept_request_bytes(&self) -> u64 {
        self.request_bytes
    }

    /// Forgets the payload of an event, for stores that keep it elsewhere.
    pub fn shed_payload(&mut self, stream: StreamNo, seq: u64) {
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        if let Ok(at) = stream.entries.binary_search_by_key(&seq, |entry| entry.seq) {
            stream.entries[at].payload = None;
        }
    }

    fn touch(&mut self, now: Time, rules: &Rules, crowd: Crowd, changes: &mut Changes) -> Touched {
        if !self.is_open() {
            return Touched::NoSession;
        }
        self.mark_active(now, rules, changes);
        crowd.over(&rules.limits).map_or(Touched::Touched, Touched::OverLimit)
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
            "session_closed",
            &format!("The session ended ({reason})."),
            now,
            rules,
            changes,
        );
        let asks: Vec<AskNo> = self.asks.keys().copied().collect();
        for ask in asks {
            self.drop_ask(ask, changes);
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

    /// Records activity, no finer than [`Timing::touch`](crate::Timing::touch).
    pub(crate) fn mark_active(&mut self, now: Time, rules: &Rules, changes: &mut Changes) {
        if now >= self.meta.last_active.plus(rules.timing.touch) {
            self.meta.last_active = now;
            changes.meta = true;
        }
    }

    /// Somebody holds a connection again.
    pub(crate) fn mark_attached(&mut self, changes: &mut Changes) {
        if self.meta.detached_at.take().is_some() {
            changes.meta = true;
            changes.lifecycle.push(Lifecycle::Reattached);
        }
    }
}
