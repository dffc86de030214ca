//! The end of a stream that this node serves, kept at hand for the one connection that reads it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;
use steadfast_session::ConnNo;
use steadfast_wire::RequestId;
use steadfast_wire::rpc::ErrorObject;

use crate::backend::Denial;

/// Fed by the store's signals in log order, drained by a [`Cursor`](crate::Cursor). Writers never wait: what the
/// reader is too slow for leaves the tail and is read from the store instead.
#[derive(Debug)]
pub(crate) struct Tail {
    state: Mutex<State>,
    max_bytes: usize,
}

#[derive(Debug)]
struct State {
    events: VecDeque<(u64, Bytes)>,
    bytes: usize,
    /// The tail holds everything after this position. `None` until the store has been read once.
    complete_after: Option<u64>,
    ended: bool,
    /// The connection that may read. Another one's cursor is over.
    reader: ConnNo,
    /// The node wants the client to come back later, perhaps elsewhere.
    told_to_leave: bool,
    /// The calls that it waits for, if their client cannot come back for the answers.
    only_chance_of: Vec<RequestId>,
    /// All the answers that the stream still waits for and the store would not take: delivered from here, once, without
    /// event ids, and with them the stream ends.
    unlogged: Vec<Bytes>,
    gave_unlogged: bool,
    /// What the server has said of the client's credentials.
    verdict: Option<Verdict>,
    waker: Option<Waker>,
}

/// What a server says of the credentials that its client has shown.
#[derive(Debug)]
pub(crate) enum Verdict {
    Admitted,
    /// Boxed: it is rare, and there is a tail for every connection.
    Denied(Box<Denial>),
}

/// What a reader finds in the tail.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Events were moved to the caller's list; the position is the last of them.
    Events {
        through: u64,
    },
    /// The position lies before the tail: read the store.
    Behind,
    Ended,
    /// The last answers, which are in no log.
    Unlogged(Vec<Bytes>),
    Superseded,
    ToldToLeave,
    Nothing,
}

impl Tail {
    /// The tail of a stream that has just been made: it is complete from the start.
    pub(crate) fn of_new_stream(reader: ConnNo, max_bytes: usize) -> Self {
        Self::new(reader, Some(0), max_bytes)
    }

    /// The tail of a stream with a past, which the store knows.
    pub(crate) fn of_known_stream(reader: ConnNo, max_bytes: usize) -> Self {
        Self::new(reader, None, max_bytes)
    }

    fn new(reader: ConnNo, complete_after: Option<u64>, max_bytes: usize) -> Self {
        let state = State {
            events: VecDeque::new(),
            bytes: 0,
            complete_after,
            ended: false,
            reader,
            told_to_leave: false,
            only_chance_of: Vec::new(),
            unlogged: Vec::new(),
            gave_unlogged: false,
            verdict: None,
            waker: None,
        };
        Self { state: Mutex::new(state), max_bytes }
    }

    pub(crate) fn push(&self, seq: u64, payload: Bytes) {
        let mut state = self.lock();
        if state.gave_unlogged {
            // The reader has them.
            return;
        }
        // The store takes answers again. What has not been delivered yet will come by way of the log.
        state.unlogged.clear();
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
        let mut state = self.lock();
        state.ended = true;
        // Everything is in the log.
        state.unlogged.clear();
        state.wake();
    }

    pub(crate) fn supersede(&self, reader: ConnNo) {
        let mut state = self.lock();
        if reader > state.reader {
            state.reader = reader;
            state.wake();
        }
    }

    /// The client cannot come back for the answers to these calls: whoever waits here is to be given time.
    pub(crate) fn is_only_chance_of(&self, calls: Vec<RequestId>) {
        self.lock().only_chance_of = calls;
    }

    pub(crate) fn can_come_back(&self) -> bool {
        self.lock().only_chance_of.is_empty()
    }

    /// There is no more time: whoever can come back is told to, others get this error.
    pub(crate) fn give_up(&self, error: &ErrorObject) {
        let calls = self.lock().only_chance_of.clone();
        match &calls[..] {
            [call] => self.deliver_unlogged(vec![error.to_message(Some(call)).into()]),
            // Some of several may have been answered.
            _ => self.tell_to_leave(),
        }
    }

    pub(crate) fn tell_to_leave(&self) {
        let mut state = self.lock();
        state.told_to_leave = true;
        state.wake();
    }

    pub(crate) fn deliver_unlogged(&self, answers: Vec<Bytes>) {
        let mut state = self.lock();
        if !state.ended {
            state.unlogged = answers;
            state.wake();
        }
    }

    /// The server's word on the client's credentials, which counts while nothing else has been said: after that the head of the
    /// response is out, or about to be.
    pub(crate) fn judge(&self, verdict: Verdict) {
        let mut state = self.lock();
        if !state.has_spoken() && state.verdict.is_none() {
            state.verdict = Some(verdict);
            state.wake();
        }
    }

    /// The server's word on the client's credentials: `Some(None)` if there is nothing to be said against them, or there will be no
    /// such word. `None` leaves `waker` for it.
    pub(crate) fn denial(&self, reader: ConnNo, waker: &Waker) -> Option<Option<Denial>> {
        let mut state = self.lock();
        let known = match state.verdict.take() {
            Some(Verdict::Denied(denial)) if state.reader == reader => Some(Some(*denial)),
            Some(_) => Some(None),
            None if state.has_spoken() || state.told_to_leave || state.reader != reader => Some(None),
            None => None,
        };
        if known.is_none() {
            state.waker = Some(waker.clone());
        }
        known
    }

    /// The tail can no longer be trusted to hold everything: the store has to be read first.
    pub(crate) fn distrust(&self) {
        let mut state = self.lock();
        state.complete_after = None;
        state.wake();
    }

    /// Looks for events after `after` on behalf of `reader`, and leaves `waker` if there are none.
    pub(crate) fn look(
        &self,
        reader: ConnNo,
        after: u64,
        out: &mut Vec<(u64, Bytes)>,
        waker: &Waker,
    ) -> Look {
        let mut state = self.lock();
        if state.reader != reader {
            return Look::Superseded;
        }
        if state.complete_after.is_none_or(|from| after < from) {
            return Look::Behind;
        }
        let mut through = after;
        // What is taken is gone from the tail: nobody else reads here, and a resuming client reads the log.
        while let Some((seq, payload)) = state.events.pop_front() {
            if seq > through + 1 {
                // Another process has written in between, or something was dropped: the store knows.
                state.events.push_front((seq, payload));
                if through == after {
                    state.complete_after = None;
                    return Look::Behind;
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
            return Look::Events { through };
        }
        if !state.unlogged.is_empty() {
            state.gave_unlogged = true;
            state.ended = true;
            return Look::Unlogged(std::mem::take(&mut state.unlogged));
        }
        if state.ended {
            return Look::Ended;
        }
        if state.told_to_leave {
            return Look::ToldToLeave;
        }
        if state.waker.as_ref().is_none_or(|old| !old.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        Look::Nothing
    }

    /// The store has been read up to `through` after this tail began to listen, so what follows is here, unless
    /// it did not fit.
    pub(crate) fn caught_up(&self, through: u64) {
        let mut state = self.lock();
        if state.complete_after.is_some() {
            return;
        }
        let first = state.events.front().map(|(seq, _)| *seq);
        // Something may have been pushed out while nobody counted. Sequence numbers tell: if the tail begins
        // right after the read, or earlier, nothing is missing.
        if first.is_none_or(|first| first <= through + 1) {
            state.complete_after = Some(through);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether there was, or may have been, anything for the reader.
    fn has_spoken(&self) -> bool {
        let is_new = self.complete_after == Some(0) && self.events.is_empty() && self.unlogged.is_empty();
        !is_new || self.ended
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
