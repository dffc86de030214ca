//! What this node is doing for a session, right now.

mod given;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use steadfast_session::{CallNo, ConnNo, Facts, Holdings, NodeId, SessionId, StreamNo, Time};
use steadfast_wire::RequestId;
use tokio_util::sync::CancellationToken;

use crate::asks::AskQueue;
use crate::looks::Looking;
use crate::notes::Notes;
use crate::tail::Tail;

/// What this node does for one session.
#[derive(Debug)]
pub struct LiveSession {
    facts: Arc<Facts>,
    tag: u32,
    last_used: AtomicU64,
    /// Something of the backend's, kept for as long as this is.
    keepsake: OnceLock<Arc<dyn Any + Send + Sync>>,
    work: Mutex<Work>,
    asks: Mutex<AskQueue>,
    /// Held while asks are taken from the queue and handed to the store, so that they keep their order. Signals of the
    /// store come while it is held and never take it.
    sending_asks: Mutex<()>,
    notes: Mutex<Notes>,
    pub(crate) looking: Looking,
    /// The store may think that this node holds something of the session that it does not know of.
    is_suspect: AtomicBool,
    /// Other nodes may give calls to this one.
    expects_errands: AtomicBool,
    /// Somebody here may wait for a call that another node has to begin.
    awaits_others: AtomicBool,
}

#[derive(Debug, Default)]
struct Work {
    tails: BTreeMap<StreamNo, (ConnNo, Arc<Tail>)>,
    calls: BTreeMap<CallNo, Running>,
    /// Calls of other nodes that were begun here and that the store still held when this node last looked.
    errands: BTreeSet<CallNo>,
    /// Answers that the store would not take, of calls that are therefore still in flight. They are offered again.
    unsent: BTreeMap<CallNo, Bytes>,
    /// Streams that were written out, to be told to the store with the next command.
    delivered: Vec<StreamNo>,
    /// How many calls are being begun: the store may report on them before they are known here.
    beginning: usize,
    /// How many connections are being attached.
    attaching: usize,
    /// How many of both were ever started.
    started: u64,
    /// What was reported of calls and streams that are not known here yet.
    early: Early,
}

/// What has to be done where the store can be used, because of what it has said where it cannot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chores {
    /// Asks that wait may have their turn now.
    pub(crate) send_asks: bool,
    /// Answers are kept for this node.
    pub(crate) look: bool,
}

#[derive(Debug, Default)]
struct Early {
    touched: BTreeSet<StreamNo>,
    stopped: BTreeSet<CallNo>,
    /// There was too much to remember. Then every new tail is checked against the store.
    forgot_some: bool,
}

/// How many early reports are remembered. They are rare: somebody has to end a call while it is being begun.
const MAX_EARLY: usize = 1024;

/// How many streams that were written out are remembered until the store hears of them.
const MAX_DELIVERED: usize = 4096;

/// A call that runs here.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) id: RequestId,
    pub(crate) stream: StreamNo,
    pub(crate) deadline: Time,
    /// The client can come back for the answer: its stream began with an event to resume from.
    pub(crate) resumable: bool,
    /// Another node has given it to this one.
    pub(crate) given: bool,
    /// If this node goes, another one may do it, and its client finds the answer there.
    pub(crate) again: bool,
    /// It was given to this node, which must not run it any more.
    pub(crate) is_misrouted: bool,
    /// This node drains and has given up on it. Another node will run it again and answer it.
    pub(crate) is_released: bool,
    pub(crate) cancel: CancellationToken,
}

impl LiveSession {
    pub(crate) fn new(facts: Arc<Facts>) -> Self {
        let (tag, last_used) = (facts.id.tag(), AtomicU64::new(facts.opened_at.0));
        Self {
            facts,
            tag,
            last_used,
            keepsake: OnceLock::new(),
            work: Mutex::default(),
            asks: Mutex::default(),
            sending_asks: Mutex::default(),
            notes: Mutex::default(),
            looking: Looking::default(),
            is_suspect: AtomicBool::new(false),
            expects_errands: AtomicBool::new(false),
            awaits_others: AtomicBool::new(false),
        }
    }

    pub fn id(&self) -> SessionId {
        self.facts.id
    }

    pub fn facts(&self) -> &Arc<Facts> {
        &self.facts
    }

    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// What the backend made of the session's facts, so that a busy session makes it once.
    pub(crate) fn keepsake<T: Send + Sync + 'static>(&self, make: impl FnOnce(&Facts) -> T) -> Arc<T> {
        if let Some(kept) = self.keepsake.get()
            && let Ok(kept) = Arc::clone(kept).downcast()
        {
            return kept;
        }
        let made = Arc::new(make(&self.facts));
        // Another request may have been faster, or the type is another; either way what was made is right.
        let _ = self.keepsake.set(Arc::clone(&made) as Arc<dyn Any + Send + Sync>);
        made
    }

    pub(crate) fn mark_used(&self, now: Time) {
        self.last_used.fetch_max(now.0, Ordering::Relaxed);
    }

    pub(crate) fn is_unused_since(&self, before: Time) -> bool {
        let work = self.work();
        self.last_used.load(Ordering::Relaxed) < before.0
            && work.tails.is_empty()
            && work.calls.is_empty()
            && work.beginning == 0
            && work.attaching == 0
            && self.asks().is_empty()
            && !self.is_suspect.load(Ordering::SeqCst)
            && !self.expects_errands.load(Ordering::SeqCst)
            && !self.awaits_others()
    }

    /// Before a begin command goes to the store. Gives what the store should learn along the way.
    pub(crate) fn beginning(&self) -> Vec<StreamNo> {
        let mut work = self.work();
        work.beginning += 1;
        work.started += 1;
        std::mem::take(&mut work.delivered)
    }

    /// After a begin command that came to nothing, or is not known to have come to anything. The store may not have heard
    /// of what it should have learnt; hearing of it twice does no harm.
    pub(crate) fn not_begun(&self, mut delivered: Vec<StreamNo>) {
        let mut work = self.work();
        work.begun_one();
        delivered.append(&mut work.delivered);
        delivered.truncate(MAX_DELIVERED);
        work.delivered = delivered;
    }

    /// After a begin command that took effect.
    pub(crate) fn begun(
        &self,
        stream: StreamNo,
        connection: ConnNo,
        tail: &Arc<Tail>,
        calls: &[(CallNo, Running)],
    ) {
        let mut work = self.work();
        for (no, running) in calls {
            if work.early.stopped.remove(no) {
                running.cancel.cancel();
            } else {
                work.calls.insert(*no, running.clone());
            }
        }
        if work.early.touched.remove(&stream) || work.early.forgot_some {
            tail.distrust();
        }
        work.tails.insert(stream, (connection, Arc::clone(tail)));
        work.begun_one();
    }

    /// Before an attach command goes to the store.
    pub(crate) fn attaching(&self) {
        let mut work = self.work();
        work.attaching += 1;
        work.started += 1;
    }

    /// After an attach command that came to nothing, or is not known to have come to anything.
    pub(crate) fn not_attached(&self) {
        self.work().attaching -= 1;
    }

    /// After an attach command that took effect.
    pub(crate) fn attached(&self, stream: StreamNo, connection: ConnNo, tail: &Arc<Tail>) {
        let mut work = self.work();
        work.attaching -= 1;
        // Attaching may be reported in another order than it happened; the newest connection stays.
        match work.tails.get(&stream) {
            Some((newer, _)) if *newer > connection => tail.supersede(*newer),
            Some((_, older)) => {
                older.supersede(connection);
                work.tails.insert(stream, (connection, Arc::clone(tail)));
            }
            None => {
                work.tails.insert(stream, (connection, Arc::clone(tail)));
            }
        }
    }

    pub(crate) fn drop_tail(&self, stream: StreamNo, connection: ConnNo) {
        let mut work = self.work();
        if work.tails.get(&stream).is_some_and(|(reader, _)| *reader == connection) {
            work.tails.remove(&stream);
        }
    }

    /// A connection has written a stream to its end.
    pub(crate) fn delivered(&self, stream: StreamNo, connection: ConnNo) {
        self.drop_tail(stream, connection);
        let mut work = self.work();
        // Bounded by what a session may have; beyond it the store forgets by time instead.
        if work.delivered.len() < MAX_DELIVERED {
            work.delivered.push(stream);
        }
    }

    /// A call was answered. Gives what was known of it.
    pub(crate) fn finished(&self, call: CallNo) -> Option<Running> {
        let mut work = self.work();
        work.unsent.remove(&call);
        let running = work.calls.remove(&call);
        drop(work);
        self.asks().call_over(call);
        running
    }

    /// Keeps an answer that the store does not take, to be offered again. The first one stays: its client may have it. Once
    /// every call of a stream has come to this, its connection gets the answers from here.
    pub(crate) fn keep_answer(&self, call: CallNo, answer: Bytes) {
        let mut work = self.work();
        let Some(stream) = work.calls.get(&call).map(|running| running.stream) else { return };
        work.unsent.entry(call).or_insert(answer);
        let mut of_stream = work.calls.iter().filter(|(_, running)| running.stream == stream);
        let answers: Option<Vec<Bytes>> = of_stream.try_fold(Vec::new(), |mut all, (no, _)| {
            all.push(work.unsent.get(no)?.clone());
            Some(all)
        });
        if let (Some(answers), Some((_, tail))) = (answers, work.tails.get(&stream)) {
            tail.deliver_unlogged(answers);
        }
    }

    pub(crate) fn kept_answer(&self, call: CallNo) -> Option<Bytes> {
        self.work().unsent.get(&call).cloned()
    }

    pub(crate) fn kept_answers(&self) -> Vec<(CallNo, Bytes)> {
        self.work().unsent.iter().map(|(call, answer)| (*call, answer.clone())).collect()
    }

    pub(crate) fn overdue(&self, now: Time) -> Vec<(CallNo, Running)> {
        let work = self.work();
        work.calls
            .iter()
            .filter(|(no, call)| call.deadline <= now && !work.unsent.contains_key(no))
            .map(|(no, call)| (*no, call.clone()))
            .collect()
    }

    pub(crate) fn tail(&self, stream: StreamNo) -> Option<Arc<Tail>> {
        self.work().tails.get(&stream).map(|(_, tail)| Arc::clone(tail))
    }

    pub(crate) fn tails(&self) -> Vec<Arc<Tail>> {
        self.work().tails.values().map(|(_, tail)| Arc::clone(tail)).collect()
    }

    /// Sends away connections whose stream no call of this node feeds, and who can come back for what they wait for.
    pub(crate) fn send_waiting_away(&self) {
        let work = self.work();
        let fed: BTreeSet<StreamNo> = work.calls.values().map(|call| call.stream).collect();
        for (_, (_, tail)) in work.tails.iter().filter(|(stream, _)| !fed.contains(stream)) {
            if tail.can_come_back() {
                tail.tell_to_leave();
            }
        }
    }

    /// Something was done of which this node does not know whether it happened.
    pub(crate) fn suspect(&self) {
        self.is_suspect.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::SeqCst)
    }

    pub(crate) fn trust(&self) {
        self.is_suspect.store(false, Ordering::SeqCst);
    }

    /// How much was ever started here that makes this node hold something; `None` while such a thing is under way.
    pub(crate) fn settled(&self) -> Option<u64> {
        let work = self.work();
        let asks = self.asks().settled()?;
        (work.beginning == 0 && work.attaching == 0).then_some(work.started + asks)
    }

    /// Leaves what this node does not know of.
    pub(crate) fn unknown_of(&self, held: Holdings) -> Holdings {
        let Holdings::Held { mut calls, errands, mut asks, answers, mut connections } = held else {
            return held;
        };
        let work = self.work();
        // Calls of other nodes are run by whoever looks.
        let is_errand = |no: &CallNo| errands.iter().any(|errand| errand.call == *no);
        calls.retain(|(no, _)| !work.calls.contains_key(no) && !is_errand(no));
        connections.retain(|(stream, connection)| {
            work.tails.get(stream).is_none_or(|(reader, _)| reader != connection)
        });
        drop(work);
        let queue = self.asks();
        asks.retain(|no| !queue.awaits(*no));
        Holdings::Held { calls, errands, asks, answers, connections }
    }

    /// Hands over what the store has committed.
    pub(crate) fn take_news(&self, news: &steadfast_store::News<'_>, node: NodeId) -> Chores {
        let mut work = self.work();
        let work = &mut *work;
        for event in news.appended {
            match work.tails.get(&event.stream) {
                Some((_, tail)) => tail.push(event.seq, event.payload.clone()),
                None => work.note_early(Some(event.stream), None),
            }
        }
        for stream in news.grown {
            match work.tails.get(stream) {
                Some((_, tail)) => tail.distrust(),
                None => work.note_early(Some(*stream), None),
            }
        }
        for (stream, connection) in news.superseded {
            if let Some((_, tail)) = work.tails.get(stream) {
                tail.supersede(*connection);
            }
        }
        for (call, _) in news.stopped {
            if !work.stop(*call) {
                work.note_early(None, Some(*call));
            }
        }
        for stream in news.ended {
            match work.tails.get(stream) {
                Some((_, tail)) => tail.end(),
                None => work.note_early(Some(*stream), None),
            }
        }
        let look = news.kept.iter().any(|(_, owner)| *owner == node);
        if news.stopped.is_empty() && news.withdrawn.is_empty() {
            return Chores { send_asks: false, look };
        }
        let mut asks = self.asks();
        for (ask, _) in news.withdrawn.iter().filter(|(_, owner)| *owner == node) {
            asks.withdrawn(*ask);
        }
        for (call, _) in news.stopped {
            asks.call_over(*call);
        }
        Chores { send_asks: asks.has_waiting(), look }
    }

    /// Whether this node does something here that others may end or answer, or is to do something.
    pub(crate) fn is_busy(&self) -> bool {
        let work = self.work();
        !work.calls.is_empty()
            || work.beginning > 0
            || !self.asks().is_empty()
            || self.expects_errands.load(Ordering::SeqCst)
    }

    /// Whether a connection reads here.
    pub(crate) fn has_readers(&self) -> bool {
        !self.work().tails.is_empty()
    }

    pub(crate) fn runs(&self, call: CallNo) -> bool {
        self.work().calls.contains_key(&call)
    }

    pub(crate) fn running_calls(&self) -> Vec<CallNo> {
        self.work().calls.keys().copied().collect()
    }

    /// Calls that others have ended.
    pub(crate) fn stopped(&self, calls: &[CallNo]) {
        let mut work = self.work();
        for call in calls {
            work.stop(*call);
        }
        drop(work);
        let mut asks = self.asks();
        calls.iter().for_each(|call| asks.call_over(*call));
    }

    /// The session is gone: nothing here goes on. What is left for its connections to read is in the store.
    pub(crate) fn over(&self) {
        self.stopped(&self.running_calls());
        self.asks().session_over();
        self.tails().iter().for_each(|tail| tail.distrust());
    }

    pub(crate) fn asks(&self) -> MutexGuard<'_, AskQueue> {
        self.asks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sending_asks(&self) -> MutexGuard<'_, ()> {
        self.sending_asks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    /// Gives whether the call runs here.
    fn stop(&mut self, call: CallNo) -> bool {
        self.unsent.remove(&call);
        let running = self.calls.remove(&call);
        running.inspect(|running| running.cancel.cancel()).is_some()
    }

    fn note_early(&mut self, stream: Option<StreamNo>, call: Option<CallNo>) {
        if self.beginning == 0 {
            return;
        }
        self.early.touched.extend(stream);
        self.early.stopped.extend(call);
        if self.early.touched.len() + self.early.stopped.len() > MAX_EARLY {
            self.early = Early { forgot_some: true, ..Early::default() };
        }
    }

    fn begun_one(&mut self) {
        self.beginning -= 1;
        if self.beginning == 0 {
            self.early = Early::default();
        }
    }
}
