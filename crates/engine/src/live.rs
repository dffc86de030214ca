//! What this node is doing for which sessions, right now. An idle session is a name in a set.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use steadfast_session::{AskNo, CallNo, ConnNo, Facts, SessionId, StreamNo, Time};
use steadfast_store::sharded::{SessionMap, Sharded};
use steadfast_wire::RequestId;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::tail::Tail;

/// The sessions this node has served since it started, and the work it does for some of them.
#[derive(Debug, Default)]
pub(crate) struct LiveSessions {
    shards: Sharded<SessionMap<Option<Arc<LiveSession>>>>,
}

/// How this node came to know a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Before,
    FirstSeen,
}

impl LiveSessions {
    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<LiveSession>> {
        self.shards.of(id).get(id).cloned().flatten()
    }

    /// The session's live part, made if there is none.
    pub(crate) fn enter(&self, facts: &Arc<Facts>) -> (Arc<LiveSession>, Known) {
        let mut shard = self.shards.of(&facts.id);
        let known = if shard.contains_key(&facts.id) { Known::Before } else { Known::FirstSeen };
        let slot = shard.entry(facts.id).or_default();
        let session = slot.get_or_insert_with(|| Arc::new(LiveSession::new(Arc::clone(facts))));
        (Arc::clone(session), known)
    }

    /// Whether this node serves the session, or has and would again.
    pub(crate) fn knows(&self, id: &SessionId) -> bool {
        self.shards.of(id).contains_key(id)
    }

    /// Remembers a session that was opened here.
    pub(crate) fn note(&self, id: SessionId) {
        self.shards.of(&id).entry(id).or_default();
    }

    pub(crate) fn remove(&self, id: &SessionId) -> Option<Arc<LiveSession>> {
        self.shards.of(id).remove(id).flatten()
    }

    /// Every session that has a live part.
    pub(crate) fn all(&self) -> Vec<Arc<LiveSession>> {
        self.shards.each().flat_map(|shard| shard.values().flatten().cloned().collect::<Vec<_>>()).collect()
    }

    /// Drops the live part of sessions for which nothing has been done since `before`, and keeps their names.
    pub(crate) fn forget_unused(&self, before: Time) {
        for mut shard in self.shards.each() {
            for slot in shard.values_mut() {
                // Nobody else holds it, so nobody is about to use it.
                if slot
                    .as_ref()
                    .is_some_and(|live| Arc::strong_count(live) == 1 && live.is_unused_since(before))
                {
                    *slot = None;
                }
            }
        }
    }
}

/// What this node does for one session.
#[derive(Debug)]
pub struct LiveSession {
    facts: Arc<Facts>,
    tag: u32,
    last_used: AtomicU64,
    /// Something of the backend's, kept for as long as this is.
    keepsake: OnceLock<Arc<dyn Any + Send + Sync>>,
    work: Mutex<Work>,
}

#[derive(Debug, Default)]
struct Work {
    tails: BTreeMap<StreamNo, (ConnNo, Arc<Tail>)>,
    calls: BTreeMap<CallNo, Running>,
    asks: BTreeMap<AskNo, oneshot::Sender<Bytes>>,
    /// How many asks are being opened: the client may answer before they are known here.
    asking: usize,
    /// Answers to asks that are not known here yet; `None` for an ask that was withdrawn.
    early_answers: BTreeMap<AskNo, Option<Bytes>>,
    /// Streams that were written out, to be told to the store with the next command.
    delivered: Vec<StreamNo>,
    /// How many calls are being begun: the store may report on them before they are known here.
    beginning: usize,
    /// What was reported of calls and streams that are not known here yet.
    early: Early,
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

/// A call that runs here.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) id: RequestId,
    pub(crate) stream: StreamNo,
    pub(crate) deadline: Time,
    /// The client can come back for the answer: its stream began with an event to resume from.
    pub(crate) resumable: bool,
    pub(crate) cancel: CancellationToken,
}

impl LiveSession {
    fn new(facts: Arc<Facts>) -> Self {
        let (tag, last_used) = (facts.id.tag(), AtomicU64::new(facts.opened_at.0));
        Self { facts, tag, last_used, keepsake: OnceLock::new(), work: Mutex::default() }
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

    fn is_unused_since(&self, before: Time) -> bool {
        let work = self.work();
        self.last_used.load(Ordering::Relaxed) < before.0
            && work.tails.is_empty()
            && work.calls.is_empty()
            && work.asks.is_empty()
            && work.asking == 0
            && work.beginning == 0
    }

    /// Before a begin command goes to the store. Gives what the store should learn along the way.
    pub(crate) fn beginning(&self) -> Vec<StreamNo> {
        let mut work = self.work();
        work.beginning += 1;
        std::mem::take(&mut work.delivered)
    }

    /// After a begin command that came to nothing.
    pub(crate) fn not_begun(&self) {
        self.work().begun_one();
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

    pub(crate) fn attach(&self, stream: StreamNo, connection: ConnNo, tail: &Arc<Tail>) {
        let mut work = self.work();
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
        if work.delivered.len() < 4096 {
            work.delivered.push(stream);
        }
    }

    pub(crate) fn finished(&self, call: CallNo) -> Option<Running> {
        self.work().calls.remove(&call)
    }

    pub(crate) fn overdue(&self, now: Time) -> Vec<(CallNo, Running)> {
        let work = self.work();
        work.calls
            .iter()
            .filter(|(_, call)| call.deadline <= now)
            .map(|(no, call)| (*no, call.clone()))
            .collect()
    }

    pub(crate) fn running(&self) -> Vec<(CallNo, Running)> {
        self.work().calls.iter().map(|(no, call)| (*no, call.clone())).collect()
    }

    pub(crate) fn tail(&self, stream: StreamNo) -> Option<Arc<Tail>> {
        self.work().tails.get(&stream).map(|(_, tail)| Arc::clone(tail))
    }

    pub(crate) fn tails(&self) -> Vec<Arc<Tail>> {
        self.work().tails.values().map(|(_, tail)| Arc::clone(tail)).collect()
    }

    /// Sends away connections whose stream no call of this node feeds.
    pub(crate) fn send_waiting_away(&self) {
        let work = self.work();
        let fed: BTreeSet<StreamNo> = work.calls.values().map(|call| call.stream).collect();
        for (_, (_, tail)) in work.tails.iter().filter(|(stream, _)| !fed.contains(stream)) {
            tail.tell_to_leave();
        }
    }

    /// Before an ask goes to the store.
    pub(crate) fn asking(&self) {
        self.work().asking += 1;
    }

    /// After an ask that was not opened.
    pub(crate) fn not_asked(&self) {
        self.work().asked_one();
    }

    /// After an ask that was opened. The client may have been quicker.
    pub(crate) fn asked(&self, ask: AskNo) -> oneshot::Receiver<Bytes> {
        let (sender, receiver) = oneshot::channel();
        let mut work = self.work();
        match work.early_answers.remove(&ask) {
            // The receiver is in our hands, so this cannot fail.
            Some(Some(answer)) => drop(sender.send(answer)),
            Some(None) => drop(sender),
            None => drop(work.asks.insert(ask, sender)),
        }
        work.asked_one();
        receiver
    }

    /// Hands an answer to whoever waits for it here, now or in a moment.
    pub(crate) fn answer(&self, ask: AskNo, answer: Bytes) {
        let mut work = self.work();
        match work.asks.remove(&ask) {
            // The waiter may have given up this very moment; its deadline has told it so.
            Some(waiter) => drop(waiter.send(answer)),
            None if work.asking > 0 => drop(work.early_answers.insert(ask, Some(answer))),
            None => {}
        }
    }

    pub(crate) fn is_awaited(&self, ask: AskNo) -> bool {
        self.work().asks.contains_key(&ask)
    }

    pub(crate) fn stop_waiting(&self, ask: AskNo) {
        self.work().asks.remove(&ask);
    }

    pub(crate) fn take_news(&self, news: &steadfast_store::News<'_>) {
        let mut work = self.work();
        let work = &mut *work;
        for event in news.appended {
            match work.tails.get(&event.stream) {
                Some((_, tail)) => tail.push(event.seq, event.payload.clone()),
                None => work.note_early(Some(event.stream), None),
            }
        }
        for (stream, connection) in news.superseded {
            if let Some((_, tail)) = work.tails.get(stream) {
                tail.supersede(*connection);
            }
        }
        for (call, _) in news.stopped {
            match work.calls.remove(call) {
                Some(running) => running.cancel.cancel(),
                None => work.note_early(None, Some(*call)),
            }
        }
        for stream in news.ended {
            match work.tails.get(stream) {
                Some((_, tail)) => tail.end(),
                None => work.note_early(Some(*stream), None),
            }
        }
        for (ask, _) in news.withdrawn {
            if work.asks.remove(ask).is_none() && work.asking > 0 {
                work.early_answers.insert(*ask, None);
            }
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
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

    fn asked_one(&mut self) {
        self.asking -= 1;
        if self.asking == 0 {
            self.early_answers.clear();
        }
    }

    fn begun_one(&mut self) {
        self.beginning -= 1;
        if self.beginning == 0 {
            self.early = Early::default();
        }
    }
}
