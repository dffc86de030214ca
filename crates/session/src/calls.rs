//! Calls in flight: begun together, finished once.

use std::collections::BTreeSet;

use bytes::Bytes;
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{RequestId, planted};

use crate::changes::Changes;
use crate::command::{Begin, Begun, Cancel, Cancelled, Duplicates, Finish, Finished};
use crate::crowd::Crowd;
use crate::ids::{CallNo, ConnNo, NodeId, StreamNo, Time};
use crate::limits::{Limit, Rules};
use crate::session::Session;
use crate::tables::{Call, Class, Mailed, Request, Stream, StreamKind};

/// Commands whose calls went to another node and that are remembered. A node asks again within seconds.
pub(crate) const MAX_MAILED: usize = 32;

impl Session {
    pub(crate) fn begin(
        &mut self,
        mut command: Begin,
        now: Time,
        rules: &Rules,
        crowd: Crowd,
        changes: &mut Changes,
    ) -> Begun {
        if !self.is_open() {
            return Begun::NoSession;
        }
        if let Some(begun) = self.begun_before(&command) {
            return begun;
        }
        if command.recall {
            return Begun::Recalled;
        }
        if self.is_fenced(command.fence.as_ref()) {
            return Begun::Fenced;
        }
        for stream in &command.delivered {
            // An open stream has no last event that could have been written.
            if self.streams.get(stream).is_some_and(|stream| !stream.is_open()) {
                self.mark_delivered(*stream, u64::MAX, changes);
            }
        }
        let crowd = self.evict_spent(&rules.limits, crowd, changes);
        if let Some(id) = self.duplicate(&command.ids, command.duplicates) {
            return Begun::Duplicate(id);
        }
        if let Some(limit) = self.no_room_for(command.ids.len(), rules, crowd) {
            return Begun::OverLimit(limit);
        }
        if !command.requests.is_empty() && !self.have_room_for_requests(&mut command, rules) {
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
        let Begin { node: from, owner, attempt, answer_only, .. } = command;
        if owner != from {
            self.remember(Mailed { node: from, attempt, stream }, changes);
        }
        let mut requests = command.requests.into_iter();
        for (i, id) in command.ids.into_iter().enumerate() {
            let no = CallNo(first.0 + i as u64);
            let request = requests.next().flatten().map(Box::new);
            self.add_call(no, Call { id, stream, owner, from, attempt, answer_only, request }, changes);
        }
        changes.meta = true;
        Begun::Begun { stream, first, connection }
    }

    pub(crate) fn add_call(&mut self, no: CallNo, call: Call, changes: &mut Changes) {
        self.by_id.insert((call.id.clone(), no));
        self.request_bytes += call.kept_bytes();
        changes.calls.push(no);
        if call.is_errand() {
            changes.errands.push((no, call.owner));
        }
        self.calls.insert(no, call);
    }

    /// The node that these calls came to can find out that another one has them, even when they are over.
    pub(crate) fn remember(&mut self, mailed: Mailed, changes: &mut Changes) {
        let all = &mut self.meta.mailed;
        all.push(mailed);
        all.drain(..all.len().saturating_sub(MAX_MAILED));
        changes.meta = true;
    }

    /// Forgets what is not to be kept for want of room. `false` if that cannot be done without.
    fn have_room_for_requests(&self, command: &mut Begin, rules: &Rules) -> bool {
        let mut room = rules.limits.kept_request_bytes.saturating_sub(self.request_bytes);
        for kept in &mut command.requests {
            let Some(Request { text, .. }) = kept else { continue };
            match room.checked_sub(text.len() as u64) {
                Some(left) => room = left,
                None if command.owner != command.node => return false,
                None => *kept = None,
            }
        }
        true
    }

    /// Whether a command that is sent again has taken effect before, as far as that is known.
    pub fn has_begun(&self, command: &Begin) -> bool {
        self.begun_before(command).is_some()
    }

    /// What the first of two equal commands came to, as long as its calls are in flight or were given to another node.
    fn begun_before(&self, command: &Begin) -> Option<Begun> {
        if !command.again && !command.recall {
            return None;
        }
        let of_this = |mailed: &&Mailed| (mailed.node, mailed.attempt) == (command.node, command.attempt);
        let taken = |mailed: &Mailed| Begun::Taken { stream: mailed.stream };
        self.in_flight_of(command).or_else(|| self.meta.mailed.iter().find(of_this).map(taken))
    }

    fn in_flight_of(&self, command: &Begin) -> Option<Begun> {
        let of_this = |call: &Call| (call.from, call.attempt) == (command.node, command.attempt);
        let (no, call) = self.calls.iter().find(|(_, call)| of_this(call))?;
        if call.owner != command.owner {
            return Some(Begun::Taken { stream: call.stream });
        }
        // Calls in front of it may have been cancelled since.
        let place = command.ids.iter().position(|id| *id == call.id)?;
        let first = CallNo(no.0.checked_sub(place as u64)?);
        let (connection, _) = self.streams.get(&call.stream)?.attached?;
        Some(Begun::Begun { stream: call.stream, first, connection })
    }

    /// The first id that cannot be taken. Inside one POST an id is never taken twice: its answers share a stream,
    /// so the client could not tell them apart.
    fn duplicate(&self, ids: &[RequestId], duplicates: Duplicates) -> Option<RequestId> {
        let mut seen = BTreeSet::new();
        let taken = |id| duplicates == Duplicates::Reject && self.in_flight(id).next().is_some();
        ids.iter().find(|id| !seen.insert(*id) || taken(id)).cloned()
    }

    fn in_flight(&self, id: &RequestId) -> impl Iterator<Item = CallNo> {
        let range = (id.clone(), CallNo(0))..=(id.clone(), CallNo(u64::MAX));
        self.by_id.range(range).map(|(_, no)| *no)
    }

    fn no_room_for(&self, calls: usize, rules: &Rules, crowd: Crowd) -> Option<Limit> {
        let limits = &rules.limits;
        if self.calls.len() + calls > limits.calls {
            Some(Limit::Calls)
        } else if self.streams.len() - self.spent.len() >= limits.streams {
            Some(Limit::Streams)
        } else if self.bytes > limits.session_bytes {
            Some(Limit::SessionBytes)
        } else {
            crowd.over(limits)
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
        let mut named = self.in_flight(&command.id);
        let (first, more) = (named.next(), named.next().is_some());
        drop(named);
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

    /// Answers every call that is chosen with an explicit error.
    pub(crate) fn fail_calls(
        &mut self,
        chosen: impl Fn(&Call) -> bool,
        reason: &str,
        message: &str,
        now: Time,
        rules: &Rules,
        changes: &mut Changes,
    ) -> u64 {
        let error = ErrorObject::internal(reason, message, false);
        let failed: Vec<(CallNo, NodeId, RequestId)> = self
            .calls
            .iter()
            .filter(|(_, call)| chosen(call))
            .map(|(no, call)| (*no, call.owner, call.id.clone()))
            .collect();
        for (no, owner, id) in &failed {
            let payload = Bytes::from(error.to_message(Some(id)));
            if planted("no-fence") && reason == "outcome_unknown" {
                let stream = self.calls.get(no).map_or(StreamNo::FIRST_STANDALONE, |call| call.stream);
                self.push(stream, Class::Response, payload, &rules.limits, changes);
                continue;
            }
            let is_dropped = planted("drop-on-takeover") && reason == "outcome_unknown";
            self.answer_call(*no, (!is_dropped).then_some(payload), now, rules, changes);
            changes.stopped.push((*no, *owner));
        }
        failed.len() as u64
    }

    /// Removes a call, appends its answer if there is one, and ends its stream with the last of its calls.
    fn answer_call(
        &mut self,
        no: CallNo,
        payload: Option<Bytes>,
        now: Time,
        rules: &Rules,
        changes: &mut Changes,
    ) -> Option<(StreamNo, u64)> {
        if planted("finish-keeps-call")
            && let Some(payload) = &payload
        {
            let stream = self.calls.get(&no)?.stream;
            let seq = self.push(stream, Class::Response, payload.clone(), &rules.limits, changes)?;
            return Some((stream, seq));
        }
        let call = self.remove_call(no, rules, changes)?;
        let seq = match payload {
            Some(payload) => self.push(call.stream, Class::Response, payload, &rules.limits, changes)?,
            None => {
                // Nothing is appended, but the stream waits for one call fewer.
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

    /// Takes a call out of the tables, and back what it has asked.
    pub(crate) fn remove_call(&mut self, no: CallNo, rules: &Rules, changes: &mut Changes) -> Option<Call> {
        self.withdraw_asks(|ask| ask.call == Some(no), rules, changes);
        let mut call = self.calls.remove(&no)?;
        self.request_bytes -= call.kept_bytes();
        changes.calls.push(no);
        let key = (std::mem::replace(&mut call.id, RequestId::Number(0)), no);
        self.by_id.remove(&key);
        call.id = key.0;
        Some(call)
    }
}
