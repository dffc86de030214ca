//! Calls in flight: the calls of a POST begin together, and each call finishes exactly once.

use std::collections::BTreeSet;

use bytes::Bytes;
use steadfast_wire::{Reason, RequestId};

use crate::changes::Changes;
use crate::command::{Begin, BeginMode, Begun, Cancel, Cancelled, Duplicates, Finish, Finished};
use crate::ids::{CallNo, ConnNo, NodeId, StreamNo, Time};
use crate::limits::{Limit, Rules};
use crate::rows::{Call, Class, ForwardedBegin, Request, Stream, StreamKind};
use crate::session::Session;
use crate::shared_usage::SharedUsage;

impl Session {
    pub(crate) fn begin(
        &mut self,
        mut command: Begin,
        now: Time,
        rules: &Rules,
        shared_usage: SharedUsage,
        changes: &mut Changes,
    ) -> Begun {
        if !self.is_open() {
            return Begun::NoSession;
        }
        if let Some(begun) = self.begun_earlier(&command) {
            return begun;
        }
        if command.mode == BeginMode::Recall {
            return Begun::Recalled;
        }
        if self.is_fenced(command.fence.as_ref()) {
            return Begun::Fenced;
        }
        for stream in &command.delivered {
            // An open stream has no last event yet, so it cannot be fully delivered.
            if self.streams.get(stream).is_some_and(|stream| !stream.is_open()) {
                self.mark_delivered(*stream, u64::MAX, changes);
            }
        }
        let shared_usage = self.evict_delivered_streams(&rules.limits, shared_usage, changes);
        if let Some(id) = self.find_duplicate(&command.ids, command.duplicates) {
            return Begun::Duplicate(id);
        }
        if let Some(limit) = self.limit_reached(command.ids.len(), rules, shared_usage) {
            return Begun::OverLimit(limit);
        }
        if !command.requests.is_empty() && !self.fit_requests(&mut command, rules) {
            return Begun::OverLimit(Limit::KeptRequestBytes);
        }
        self.mark_active(now, rules, changes);
        self.mark_attached(changes);
        let stream = StreamNo(self.meta.next_stream);
        let first = CallNo(self.meta.next_call);
        let connection = ConnNo(self.meta.next_connection);
        self.meta.next_stream += 1;
        self.meta.next_connection += 1;
        self.meta.next_call += command.ids.len() as u64;
        let mut log =
            Stream::new(StreamKind::Post { open: u32::try_from(command.ids.len()).unwrap_or(u32::MAX) });
        log.attached = Some((connection, command.node));
        self.attached += 1;
        self.streams.insert(stream, Box::new(log));
        changes.streams.push(stream);
        let Begin { node, owner, attempt, response_only, .. } = command;
        if owner != node {
            self.remember_forwarded(ForwardedBegin { node, attempt, stream }, changes);
        }
        let mut requests = command.requests.into_iter();
        for (i, id) in command.ids.into_iter().enumerate() {
            let no = CallNo(first.0 + i as u64);
            let request = requests.next().flatten().map(Box::new);
            let call = Call { id, stream, owner, assigned_by: node, attempt, response_only, request };
            self.add_call(no, call, changes);
        }
        changes.meta = true;
        Begun::Begun { stream, first, connection }
    }

    pub(crate) fn add_call(&mut self, no: CallNo, call: Call, changes: &mut Changes) {
        self.by_id.insert((call.id.clone(), no));
        self.kept_request_bytes += call.kept_bytes();
        changes.calls.push(no);
        if call.is_forwarded() {
            changes.forwarded.push((no, call.owner));
        }
        self.calls.insert(no, call);
    }

    /// Removes the requests that exceed `kept_request_bytes` from the command. Returns false if the
    /// owner is another node, which needs the requests.
    fn fit_requests(&self, command: &mut Begin, rules: &Rules) -> bool {
        let mut free = rules.limits.kept_request_bytes.saturating_sub(self.kept_request_bytes);
        for request in &mut command.requests {
            let Some(Request { text, .. }) = request else { continue };
            match free.checked_sub(text.len() as u64) {
                Some(left) => free = left,
                None if command.owner != command.node => return false,
                None => *request = None,
            }
        }
        true
    }

    /// Returns true if the command is a retry or a recall and an earlier attempt is known to have
    /// taken effect.
    pub fn has_begun(&self, command: &Begin) -> bool {
        self.begun_earlier(command).is_some()
    }

    /// Returns the outcome of an earlier attempt of a retried or recalled command. It is known
    /// while the calls are in flight, and longer if another node runs them.
    fn begun_earlier(&self, command: &Begin) -> Option<Begun> {
        if command.mode == BeginMode::First {
            return None;
        }
        let is_same =
            |begin: &&ForwardedBegin| (begin.node, begin.attempt) == (command.node, command.attempt);
        let forwarded = || self.meta.forwarded_begins.iter().find(is_same);
        self.in_flight_of(command)
            .or_else(|| forwarded().map(|begin| Begun::AlreadyBegun { stream: begin.stream }))
    }

    /// Returns the outcome of an earlier attempt whose calls are in flight.
    fn in_flight_of(&self, command: &Begin) -> Option<Begun> {
        let is_same = |call: &Call| (call.assigned_by, call.attempt) == (command.node, command.attempt);
        let (no, call) = self.calls.iter().find(|(_, call)| is_same(call))?;
        if call.owner != command.owner {
            return Some(Begun::AlreadyBegun { stream: call.stream });
        }
        // The calls before this one may have ended, so its position among the ids gives the first
        // number.
        let place = command.ids.iter().position(|id| *id == call.id)?;
        let first = CallNo(no.0.checked_sub(place as u64)?);
        let (connection, _) = self.streams.get(&call.stream)?.attached?;
        Some(Begun::Begun { stream: call.stream, first, connection })
    }

    /// Returns the first id that must be refused. Within one POST a repeated id is refused under
    /// every policy: the answers share a stream, so the client could not distinguish them.
    fn find_duplicate(&self, ids: &[RequestId], duplicates: Duplicates) -> Option<RequestId> {
        let mut seen = BTreeSet::new();
        let is_in_use = |id| duplicates == Duplicates::Reject && self.calls_with_id(id).next().is_some();
        ids.iter().find(|id| !seen.insert(*id) || is_in_use(id)).cloned()
    }

    fn calls_with_id(&self, id: &RequestId) -> impl Iterator<Item = CallNo> {
        let range = (id.clone(), CallNo(0))..=(id.clone(), CallNo(u64::MAX));
        self.by_id.range(range).map(|(_, no)| *no)
    }

    /// Returns the limit that so many new calls would exceed, if there is one.
    fn limit_reached(&self, calls: usize, rules: &Rules, shared_usage: SharedUsage) -> Option<Limit> {
        let limits = &rules.limits;
        if self.calls.len() + calls > limits.calls {
            Some(Limit::Calls)
        } else if self.streams.len() - self.fully_delivered.len() >= limits.streams {
            Some(Limit::Streams)
        } else if self.bytes > limits.session_bytes {
            Some(Limit::SessionBytes)
        } else if self.facts().is_call_job() {
            // A stateless request can do without a job. The last quarter is for sessions.
            shared_usage.nearly_exceeded_limit(limits)
        } else {
            shared_usage.exceeded_limit(limits)
        }
    }

    pub(crate) fn finish(
        &mut self,
        command: Finish,
        now: Time,
        rules: &Rules,
        changes: &mut Changes,
    ) -> Finished {
        if !self.is_open() {
            return Finished::NoSession;
        }
        if !self.calls.contains_key(&command.call) {
            return Finished::AlreadyFinished;
        }
        self.mark_active(now, rules, changes);
        match self.answer_call(command.call, Some(command.payload), now, rules, changes) {
            Some((stream, seq)) => Finished::Finished { stream, seq },
            None => Finished::AlreadyFinished,
        }
    }

    pub(crate) fn cancel(
        &mut self,
        command: &Cancel,
        now: Time,
        rules: &Rules,
        changes: &mut Changes,
    ) -> Cancelled {
        if !self.is_open() {
            return Cancelled::NoSession;
        }
        self.mark_active(now, rules, changes);
        let mut calls = self.calls_with_id(&command.id);
        let (first, more) = (calls.next(), calls.next().is_some());
        drop(calls);
        match first {
            None => Cancelled::Nothing,
            Some(_) if more => Cancelled::Ambiguous,
            Some(call) => {
                let owner = self.calls[&call].owner;
                self.answer_call(call, None, now, rules, changes);
                changes.stopped.push((call, owner));
                Cancelled::Cancelled { call, owner }
            }
        }
    }

    /// Answers every chosen call with an error, and returns how many.
    pub(crate) fn fail_calls(
        &mut self,
        chosen: impl Fn(&Call) -> bool,
        reason: Reason,
        message: &str,
        now: Time,
        rules: &Rules,
        changes: &mut Changes,
    ) -> u64 {
        let error = reason.error(message);
        let failed: Vec<(CallNo, NodeId, RequestId)> = self
            .calls
            .iter()
            .filter(|(_, call)| chosen(call))
            .map(|(no, call)| (*no, call.owner, call.id.clone()))
            .collect();
        for (no, owner, id) in &failed {
            let payload = Bytes::from(error.to_message(Some(id)));
            self.answer_call(*no, Some(payload), now, rules, changes);
            changes.stopped.push((*no, *owner));
        }
        failed.len() as u64
    }

    /// Removes a call and appends its answer, if there is one. The last call of a POST also ends
    /// its stream. Returns the stream and its last sequence number.
    fn answer_call(
        &mut self,
        no: CallNo,
        payload: Option<Bytes>,
        now: Time,
        rules: &Rules,
        changes: &mut Changes,
    ) -> Option<(StreamNo, u64)> {
        let call = self.remove_call(no, rules, changes)?;
        let seq = match payload {
            Some(payload) => self.push(call.stream, Class::Response, payload, &rules.limits, changes)?,
            None => {
                // No event is appended, but the stream's count of open calls changes.
                changes.streams.push(call.stream);
                self.streams.get(&call.stream)?.last_seq()
            }
        };
        if let StreamKind::Post { open } = &mut self.streams.get_mut(&call.stream)?.kind {
            *open = open.saturating_sub(1);
            if *open == 0 {
                self.end_stream(call.stream, now, changes);
            }
        }
        Some((call.stream, seq))
    }

    pub(crate) fn remove_call(&mut self, no: CallNo, rules: &Rules, changes: &mut Changes) -> Option<Call> {
        self.withdraw_server_requests(|server_request| server_request.call == Some(no), rules, changes);
        let mut call = self.calls.remove(&no)?;
        self.kept_request_bytes -= call.kept_bytes();
        changes.calls.push(no);
        let key = (std::mem::replace(&mut call.id, RequestId::Number(0)), no);
        self.by_id.remove(&key);
        call.id = key.0;
        Some(call)
    }
}
