//! The server requests of one session that this node has accepted and not completed. This is a
//! state machine without side effects: its methods return what the caller has to do.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use steadfast_session::command::{Fence, Target};
use steadfast_session::{CallNo, Limit, ServerRequestNo, Time};
use tokio::sync::oneshot;

use crate::refusal::Refusal;

/// What the waiter gets: the JSON-RPC message with the client's answer, or why there is none.
pub(crate) type Outcome = Result<Bytes, Refusal>;

/// The number of a server request on this node, in the order of arrival. The store assigns its own
/// number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LocalNo(u64);

/// Bounds the server requests of one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) in_flight: usize,
    pub(crate) queued: usize,
}

/// A server request: its target, its text, and the lease that it is sent under.
#[derive(Clone, Debug)]
pub(crate) struct QueuedServerRequest {
    pub(crate) target: Target,
    /// The JSON text of the request from `"method"` on.
    pub(crate) rest: Bytes,
    pub(crate) fence: Option<Fence>,
}

/// The server requests of one session on this node, in every stage.
#[derive(Debug, Default)]
pub(crate) struct ServerRequestQueue {
    entries: BTreeMap<LocalNo, Entry>,
    queued: BTreeSet<LocalNo>,
    by_no: BTreeMap<ServerRequestNo, LocalNo>,
    /// Open commands in flight. The client may answer before this node knows the request's number.
    opens_in_flight: usize,
    /// Answers of requests whose number this node does not know yet. `None` means withdrawn.
    early: BTreeMap<ServerRequestNo, Option<Bytes>>,
    /// Requests whose answer the store kept for this node. Their waiters have the answer; the store
    /// does not know that yet.
    uncollected: BTreeSet<ServerRequestNo>,
    /// Answer commands in flight. Such a request may be gone from the store and still be open here.
    answers_in_flight: usize,
    enqueued: u64,
    /// Counts all open and answer commands that were ever sent.
    sent: u64,
    /// The store was full because of requests of other nodes. Nothing is sent until a request of
    /// this node ends or a delay has passed.
    is_paused: bool,
    /// A timer will call [`ServerRequestQueue::resume_sending`].
    is_resume_scheduled: bool,
}

#[derive(Debug)]
struct Entry {
    target: Target,
    deadline: Time,
    /// `None` once the waiter has its outcome or was dropped.
    waiter: Option<oneshot::Sender<Outcome>>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Queued(QueuedServerRequest),
    Opening(QueuedServerRequest),
    Open(ServerRequestNo),
    /// A withdraw command is in flight.
    Withdrawing(ServerRequestNo),
}

impl ServerRequestQueue {
    /// Enqueues a request. It stays queued until [`ServerRequestQueue::start_next`] returns it.
    pub(crate) fn enqueue(
        &mut self,
        request: QueuedServerRequest,
        deadline: Time,
        bounds: Bounds,
    ) -> Result<(LocalNo, oneshot::Receiver<Outcome>), Refusal> {
        if bounds.in_flight == 0 {
            return Err(Refusal::OverLimit(Limit::ServerRequests));
        }
        let room = if self.is_paused { 0 } else { bounds.in_flight.saturating_sub(self.in_flight()) };
        if self.queued.len() >= bounds.queued + room {
            return Err(Refusal::OverLimit(Limit::QueuedServerRequests));
        }
        let (waiter, outcome) = oneshot::channel();
        let local = LocalNo(self.enqueued);
        self.enqueued += 1;
        let target = request.target;
        let stage = Stage::Queued(request);
        self.entries.insert(local, Entry { target, deadline, waiter: Some(waiter), stage });
        self.queued.insert(local);
        Ok((local, outcome))
    }

    /// Returns the next request to send to the store, if the bounds allow one.
    pub(crate) fn start_next(&mut self, bounds: Bounds) -> Option<(LocalNo, QueuedServerRequest)> {
        if self.is_paused || self.in_flight() >= bounds.in_flight {
            return None;
        }
        let local = self.queued.pop_first()?;
        let entry = self.entries.get_mut(&local)?;
        let Stage::Queued(request) = &entry.stage else { return None };
        let request = request.clone();
        entry.stage = Stage::Opening(request.clone());
        self.opens_in_flight += 1;
        self.sent += 1;
        Some((local, request))
    }

    /// The store has opened the request. Returns its number if the caller must withdraw it, because
    /// the waiter is gone.
    pub(crate) fn opened(&mut self, local: LocalNo, no: ServerRequestNo) -> Option<ServerRequestNo> {
        let early = self.early.remove(&no);
        self.open_returned();
        if let Some(answer) = early {
            self.complete(local, answer.ok_or(Refusal::ServerRequestWithdrawn));
            return None;
        }
        let entry = self.entries.get_mut(&local)?;
        self.by_no.insert(no, local);
        let abandoned = entry.waiter.is_none();
        entry.stage = if abandoned { Stage::Withdrawing(no) } else { Stage::Open(no) };
        abandoned.then_some(no)
    }

    /// The store did not open the request.
    pub(crate) fn open_failed(&mut self, local: LocalNo, why: Refusal) {
        self.open_returned();
        self.complete(local, Err(why));
    }

    /// The store was full: the request returns to its place in the queue. Returns true if the
    /// caller must schedule [`ServerRequestQueue::resume_sending`].
    pub(crate) fn store_full(&mut self, local: LocalNo) -> bool {
        self.open_returned();
        let Some(entry) = self.entries.get_mut(&local) else { return false };
        if entry.waiter.is_none() {
            self.remove(local);
            return false;
        }
        if let Stage::Opening(request) = &entry.stage {
            entry.stage = Stage::Queued(request.clone());
            self.queued.insert(local);
        }
        self.is_paused = true;
        !std::mem::replace(&mut self.is_resume_scheduled, true)
    }

    pub(crate) fn resume_sending(&mut self) {
        self.is_paused = false;
        self.is_resume_scheduled = false;
    }

    pub(crate) fn answered(&mut self, no: ServerRequestNo, answer: Bytes) {
        self.resolve(no, Some(answer));
    }

    /// Accepts an answer whose command has an unknown outcome, after the store has removed the
    /// request. Returns false if no waiter waits for the answer.
    pub(crate) fn answered_if_open(&mut self, no: ServerRequestNo, answer: Bytes) -> bool {
        let is_open = self.is_waiting_for(no);
        if is_open {
            self.answered(no, answer);
        }
        is_open
    }

    /// Gives waiters the answers that the store keeps for this node; `kept` are all of them.
    /// Returns the requests that the caller must collect. The store lists an answer until it is
    /// collected, and a waiter gets it once.
    pub(crate) fn deliver_stored_answers(
        &mut self,
        kept: Vec<(ServerRequestNo, Bytes)>,
    ) -> Vec<ServerRequestNo> {
        let numbers: Vec<ServerRequestNo> = kept.iter().map(|(no, _)| *no).collect();
        for (no, answer) in kept {
            if !self.uncollected.contains(&no) {
                self.answered(no, answer);
            }
        }
        self.uncollected = numbers.iter().copied().collect();
        numbers
    }

    /// The store has deleted the answers that were delivered.
    pub(crate) fn mark_collected(&mut self) {
        self.uncollected.clear();
    }

    /// An answer command goes to the store.
    pub(crate) fn answer_started(&mut self) {
        self.answers_in_flight += 1;
        self.sent += 1;
    }

    pub(crate) fn answer_finished(&mut self) {
        self.answers_in_flight -= 1;
    }

    /// The request was withdrawn, because its call, its session or its node has ended.
    pub(crate) fn withdrawn(&mut self, no: ServerRequestNo) {
        self.resolve(no, None);
    }

    fn resolve(&mut self, no: ServerRequestNo, answer: Option<Bytes>) {
        match self.by_no.get(&no) {
            Some(local) => self.complete(*local, answer.ok_or(Refusal::ServerRequestWithdrawn)),
            None if self.opens_in_flight > 0 => drop(self.early.insert(no, answer)),
            None => {}
        }
    }

    /// The waiter was dropped. Returns the number if the caller must withdraw the request from the
    /// store.
    pub(crate) fn abandon(&mut self, local: LocalNo) -> Option<ServerRequestNo> {
        let entry = self.entries.get_mut(&local)?;
        entry.waiter = None;
        self.withdraw(local)
    }

    /// Ends the wait of every waiter whose deadline has passed. Returns the requests to withdraw.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<(LocalNo, ServerRequestNo)> {
        let is_due = |entry: &Entry| entry.deadline <= now && entry.waiter.is_some();
        let due: Vec<LocalNo> =
            self.entries.iter().filter(|(_, entry)| is_due(entry)).map(|(local, _)| *local).collect();
        let mut open = Vec::new();
        for local in due {
            self.notify_waiter(local, Err(Refusal::ServerRequestDeadline));
            open.extend(self.withdraw(local).map(|no| (local, no)));
        }
        open
    }

    /// Removes a request without a waiter from the queue, or returns its number if the store has
    /// it.
    fn withdraw(&mut self, local: LocalNo) -> Option<ServerRequestNo> {
        let entry = self.entries.get_mut(&local)?;
        match entry.stage {
            Stage::Queued(_) => {
                self.remove(local);
                None
            }
            Stage::Opening(_) | Stage::Withdrawing(_) => None,
            Stage::Open(no) => {
                entry.stage = Stage::Withdrawing(no);
                Some(no)
            }
        }
    }

    /// The store has withdrawn the request.
    pub(crate) fn withdrawal_done(&mut self, local: LocalNo) {
        self.remove(local);
    }

    /// A call has ended: withdraws its requests, sent or queued.
    pub(crate) fn call_ended(&mut self, call: CallNo) {
        self.withdraw_matching(|entry| matches!(entry.target, Target::Call(no) if no == call));
    }

    pub(crate) fn session_ended(&mut self) {
        self.withdraw_matching(|_| true);
    }

    /// The store holds these requests for this node and no others. Open requests that it does not
    /// hold will get no answer.
    pub(crate) fn keep_only(&mut self, held: &[ServerRequestNo]) {
        self.withdraw_matching(|entry| matches!(entry.stage, Stage::Open(no) if !held.contains(&no)));
    }

    fn withdraw_matching(&mut self, chosen: impl Fn(&Entry) -> bool) {
        let chosen: Vec<LocalNo> =
            self.entries.iter().filter(|(_, entry)| chosen(entry)).map(|(local, _)| *local).collect();
        for local in chosen {
            match self.entries.get(&local).map(|entry| &entry.stage) {
                Some(Stage::Queued(_) | Stage::Open(_)) => {
                    self.complete(local, Err(Refusal::ServerRequestWithdrawn))
                }
                // The entry is removed when the open command returns.
                Some(Stage::Opening(_)) => self.notify_waiter(local, Err(Refusal::ServerRequestWithdrawn)),
                Some(Stage::Withdrawing(_)) | None => {}
            }
        }
    }

    pub(crate) fn is_waiting_for(&self, no: ServerRequestNo) -> bool {
        self.by_no.contains_key(&no)
    }

    /// Returns true if nothing is queued, open, in flight or uncollected.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.opens_in_flight == 0 && self.uncollected.is_empty()
    }

    pub(crate) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Returns how many requests and answers were ever sent to the store; `None` while one is in
    /// flight.
    pub(crate) fn settled_operations(&self) -> Option<u64> {
        (self.opens_in_flight == 0 && self.answers_in_flight == 0).then_some(self.sent)
    }

    fn in_flight(&self) -> usize {
        self.entries.len() - self.queued.len()
    }

    fn complete(&mut self, local: LocalNo, outcome: Outcome) {
        self.notify_waiter(local, outcome);
        self.remove(local);
    }

    fn notify_waiter(&mut self, local: LocalNo, outcome: Outcome) {
        if let Some(waiter) = self.entries.get_mut(&local).and_then(|entry| entry.waiter.take()) {
            // The waiter may be dropped concurrently.
            let _ = waiter.send(outcome);
        }
    }

    fn remove(&mut self, local: LocalNo) {
        let Some(entry) = self.entries.remove(&local) else { return };
        if let Stage::Open(no) | Stage::Withdrawing(no) = entry.stage {
            self.by_no.remove(&no);
        }
        if !self.queued.remove(&local) {
            // A request in flight has ended, so the store may have room.
            self.is_paused = false;
        }
    }

    fn open_returned(&mut self) {
        self.opens_in_flight = self.opens_in_flight.saturating_sub(1);
        if self.opens_in_flight == 0 {
            self.early.clear();
        }
    }
}
