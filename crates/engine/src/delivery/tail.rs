//! A cache of the newest events of a stream, for the one connection on this node that reads it.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::Bytes;
use steadfast_session::ConnNo;
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{Mutex, RequestId};

use crate::backend::Denial;

/// Filled by the store's signals in log order, drained by a [`Cursor`](crate::Cursor). Writers
/// never wait: if the reader is slow, the oldest events are dropped here and read from the store
/// later.
#[derive(Debug)]
pub(crate) struct Tail {
    state: Mutex<TailState>,
    max_bytes: usize,
}

#[derive(Debug)]
struct TailState {
    events: VecDeque<(u64, Bytes)>,
    bytes: usize,
    /// The tail has every event after this position. `None` if the store must be read first.
    complete_after: Option<u64>,
    ended: bool,
    /// The connection that may read. Cursors of older connections end.
    reader: ConnNo,
    /// The client should reconnect, possibly at another node.
    reconnect_requested: bool,
    /// The calls of this stream whose client cannot reconnect for the answers.
    unresumable_calls: Vec<RequestId>,
    /// The remaining answers of the stream, if the store does not accept them. They are delivered
    /// once, without event ids, and end the stream.
    unlogged: Vec<Bytes>,
    delivered_unlogged: bool,
    /// A notification that is not in the log, until the connection or a later event takes its
    /// place.
    unstored: Option<Bytes>,
    /// The result of the credential check, until the connection has read it.
    credential_check: Option<CredentialCheck>,
    waker: Option<Waker>,
}

/// Whether the server accepted the credentials of the client.
#[derive(Debug)]
pub(crate) enum CredentialCheck {
    Accepted,
    /// Boxed, because it is rare and every connection has a tail.
    Denied(Box<Denial>),
}

/// What [`Tail::take_events`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TailRead {
    /// Events were moved to the caller's list; `through` is the position of the last one.
    Events {
        through: u64,
    },
    /// The tail does not reach back to the position: read the store.
    Behind,
    Ended,
    /// The remaining answers, which are not in the log.
    Unlogged(Vec<Bytes>),
    Superseded,
    Reconnect,
    Empty,
}

impl Tail {
    /// Creates the tail of a new stream, which is complete from the start.
    pub(crate) fn of_new_stream(reader: ConnNo, max_bytes: usize) -> Self {
        Self::new(reader, Some(0), max_bytes)
    }

    /// Creates the tail of a stream that may have events in the store.
    pub(crate) fn of_existing_stream(reader: ConnNo, max_bytes: usize) -> Self {
        Self::new(reader, None, max_bytes)
    }

    fn new(reader: ConnNo, complete_after: Option<u64>, max_bytes: usize) -> Self {
        let state = TailState {
            events: VecDeque::new(),
            bytes: 0,
            complete_after,
            ended: false,
            reader,
            reconnect_requested: false,
            unresumable_calls: Vec::new(),
            unlogged: Vec::new(),
            delivered_unlogged: false,
            unstored: None,
            credential_check: None,
            waker: None,
        };
        Self { state: Mutex::new(state), max_bytes }
    }

    pub(crate) fn push(&self, seq: u64, payload: Bytes) {
        let mut state = self.state.lock();
        if state.delivered_unlogged {
            // The reader has received the answers without event ids.
            return;
        }
        // The store accepts answers again, so those that were not delivered yet arrive through the
        // log.
        state.unlogged.clear();
        state.unstored = None;
        state.bytes += payload.len();
        state.events.push_back((seq, payload));
        while state.bytes > self.max_bytes && state.events.len() > 1 {
            let Some((seq, payload)) = state.events.pop_front() else { break };
            state.bytes -= payload.len();
            if state.complete_after.is_some() {
                state.complete_after = Some(seq);
            }
        }
        state.wake();
    }

    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        // All answers are in the log.
        state.unlogged.clear();
        state.wake();
    }

    pub(crate) fn supersede(&self, reader: ConnNo) {
        let mut state = self.state.lock();
        if reader > state.reader {
            state.reader = reader;
            state.wake();
        }
    }

    /// The client cannot reconnect for the answers of these calls, so a drain waits for this
    /// reader.
    pub(crate) fn set_unresumable_calls(&self, calls: Vec<RequestId>) {
        self.state.lock().unresumable_calls = calls;
    }

    pub(crate) fn can_reconnect(&self) -> bool {
        self.state.lock().unresumable_calls.is_empty()
    }

    /// The drain deadline has passed: a client that waits for one unresumable call gets `error`;
    /// the others are asked to reconnect.
    pub(crate) fn fail_unresumable(&self, error: &ErrorObject) {
        let calls = self.state.lock().unresumable_calls.clone();
        match &calls[..] {
            [call] => self.deliver_unlogged(vec![error.to_message(Some(call)).into()]),
            // Some of several calls may have been answered already.
            _ => self.request_reconnect(),
        }
    }

    pub(crate) fn request_reconnect(&self) {
        let mut state = self.state.lock();
        state.reconnect_requested = true;
        state.wake();
    }

    pub(crate) fn deliver_unlogged(&self, answers: Vec<Bytes>) {
        let mut state = self.state.lock();
        if !state.ended {
            state.unlogged = answers;
            state.wake();
        }
    }

    /// Sets a notification that is not in the log. Replaces one that was not delivered yet.
    pub(crate) fn set_unstored(&self, payload: Bytes) {
        let mut state = self.state.lock();
        if !state.ended {
            state.unstored = Some(payload);
            state.wake();
        }
    }

    /// Returns the notification that is not in the log. Call this when there are no events: they
    /// come first.
    pub(crate) fn take_unstored(&self, reader: ConnNo) -> Option<Bytes> {
        let mut state = self.state.lock();
        let is_alone = state.reader == reader && state.events.is_empty() && !state.ended;
        if is_alone { state.unstored.take() } else { None }
    }

    /// Sets the result of the credential check. It is ignored once the stream has output, because
    /// the head of the response is or will be sent.
    pub(crate) fn set_credential_check(&self, credential_check: CredentialCheck) {
        let mut state = self.state.lock();
        if !state.has_output() && state.credential_check.is_none() {
            state.credential_check = Some(credential_check);
            state.wake();
        }
    }

    /// Returns the result of the credential check for `reader`: `Some(None)` if the credentials
    /// were accepted or no result will follow; `None` if it is unknown, and then `waker` is called
    /// later.
    pub(crate) fn denial(&self, reader: ConnNo, waker: &Waker) -> Option<Option<Denial>> {
        let mut state = self.state.lock();
        let known = match state.credential_check.take() {
            Some(CredentialCheck::Denied(denial)) if state.reader == reader => Some(Some(*denial)),
            Some(_) => Some(None),
            None if state.has_output() || state.reconnect_requested || state.reader != reader => Some(None),
            None => None,
        };
        if known.is_none() {
            state.waker = Some(waker.clone());
        }
        known
    }

    /// The tail may miss events: the store must be read first.
    pub(crate) fn mark_incomplete(&self) {
        let mut state = self.state.lock();
        state.complete_after = None;
        state.wake();
    }

    /// Moves the events after `after` to `out` on behalf of `reader`. If there are none, `waker` is
    /// called later.
    pub(crate) fn take_events(
        &self,
        reader: ConnNo,
        after: u64,
        out: &mut Vec<(u64, Bytes)>,
        waker: &Waker,
    ) -> TailRead {
        let mut state = self.state.lock();
        if state.reader != reader {
            return TailRead::Superseded;
        }
        if state.complete_after.is_none_or(|from| after < from) {
            return TailRead::Behind;
        }
        let mut through = after;
        // Events are removed, because the tail has one reader, and a resuming client reads the log.
        while let Some((seq, payload)) = state.events.pop_front() {
            if seq > through + 1 {
                // Another node has written in between, or an event was dropped: read the store.
                state.events.push_front((seq, payload));
                if through == after {
                    state.complete_after = None;
                    return TailRead::Behind;
                }
                break;
            }
            state.bytes -= payload.len();
            if seq > through {
                through = seq;
                out.push((seq, payload));
            }
        }
        state.complete_after = state.complete_after.max(Some(through));
        if through > after {
            return TailRead::Events { through };
        }
        if !state.unlogged.is_empty() {
            state.delivered_unlogged = true;
            state.ended = true;
            return TailRead::Unlogged(std::mem::take(&mut state.unlogged));
        }
        if state.ended {
            return TailRead::Ended;
        }
        if state.reconnect_requested {
            return TailRead::Reconnect;
        }
        if state.waker.as_ref().is_none_or(|old| !old.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        TailRead::Empty
    }

    /// The store was read up to `through` while this tail was registered, so the tail has every
    /// later event, unless events were dropped here.
    pub(crate) fn caught_up(&self, through: u64) {
        let mut state = self.state.lock();
        if state.complete_after.is_some() {
            return;
        }
        let first = state.events.front().map(|(seq, _)| *seq);
        // While `complete_after` is `None`, dropped events are not counted. Sequence numbers show a
        // gap: none exists if the tail begins right after `through` or earlier.
        if first.is_none_or(|first| first <= through + 1) {
            state.complete_after = Some(through);
        }
    }
}

impl TailState {
    /// Returns true if the reader got or may have got events.
    fn has_output(&self) -> bool {
        let is_new = self.complete_after == Some(0) && self.events.is_empty() && self.unlogged.is_empty();
        !is_new || self.ended
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
