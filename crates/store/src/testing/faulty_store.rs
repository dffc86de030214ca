//! [`FaultyStore`]: a store that wraps another one and injects faults.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use steadfast_session::{
    Command, Facts, Holdings, Limit, NodeId, Outcome, Principal, Read, Rules, SessionId, StreamNo, Time,
};
use tokio::sync::Semaphore;

use crate::error::StoreError;
use crate::reply::Reply;
use crate::signal::Subscriber;
use crate::store::{EvictionSample, Opened, Store, Usage};

/// A fault of one operation.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Fails with [`StoreError::Unavailable`]. The operation does not happen.
    BeforeCommit,
    /// Fails with [`StoreError::Unknown`]. The operation does not happen.
    Lost,
    /// Fails with [`StoreError::Unknown`]. The operation happens.
    AfterCommit,
    /// The operation happens when the gate is opened.
    HoldBefore(Gate),
    /// The operation happens at once. The reply arrives when the gate is opened.
    HoldAfter(Gate),
    /// Fails with [`StoreError::Unavailable`] when the gate is opened. The operation does not
    /// happen.
    HoldAndFail(Gate),
}

/// Holds operations until a test opens it.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Held>);

#[derive(Debug)]
struct Held {
    closed: Semaphore,
    /// One permit for each operation that has arrived.
    arrived: Semaphore,
}

impl Gate {
    #[expect(clippy::new_without_default, reason = "a gate that is closed is worth a word")]
    pub fn new() -> Self {
        Self(Arc::new(Held { closed: Semaphore::new(0), arrived: Semaphore::new(0) }))
    }

    /// Releases all operations, now and later.
    pub fn open(&self) {
        self.0.closed.close();
    }

    /// Waits until an operation is held. With [`Fault::HoldAfter`] the operation has happened by
    /// then.
    pub async fn reached(&self) {
        // This semaphore is never closed.
        let _ = self.0.arrived.acquire().await;
    }

    async fn wait_until_open(&self) {
        self.0.arrived.add_permits(1);
        // This semaphore never has a permit. The wait ends when the gate closes the semaphore.
        let _ = self.0.closed.acquire().await;
    }
}

/// An operation of the store, as a script sees it.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    Open(&'a Facts),
    ReachedLimit,
    EvictionSample,
    Apply(SessionId, &'a Command),
    Read(SessionId, StreamNo),
    Facts(SessionId),
    Holdings(SessionId),
    Sweep,
    ExternalChangeCount,
    Nodes,
    Ping,
    Usage,
}

type Choice = Box<dyn FnMut(Operation<'_>) -> bool + Send>;
type Script = Box<dyn FnMut(Operation<'_>) -> Option<Fault> + Send>;

/// The planned faults. Clones share them.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

#[derive(Default)]
struct Plan {
    once: VecDeque<(Choice, Fault)>,
    script: Option<Script>,
    injected: u64,
}

impl Faults {
    pub fn new() -> Self {
        Self::default()
    }

    /// Injects a fault into the next command.
    pub fn push(&self, fault: Fault) {
        self.push_for(|operation| matches!(operation, Operation::Apply(..)), fault);
    }

    /// Injects a fault into the next operation that `chosen` selects.
    pub fn push_for(&self, chosen: impl FnMut(Operation<'_>) -> bool + Send + 'static, fault: Fault) {
        self.with(|plan| plan.once.push_back((Box::new(chosen), fault)));
    }

    /// Sets a script that chooses a fault for each operation that has none yet.
    pub fn script(&self, script: impl FnMut(Operation<'_>) -> Option<Fault> + Send + 'static) {
        self.with(|plan| plan.script = Some(Box::new(script)));
    }

    /// Injects faults into `per_mille` of 1000 commands on average, before or after the commit. The
    /// same seed injects the same faults.
    pub fn seeded(&self, seed: u64, per_mille: u64) {
        let mut state = seed;
        self.script(move |operation| {
            if !matches!(operation, Operation::Apply(..)) {
                return None;
            }
            let random = split_mix(&mut state);
            let fault = if random >> 32 & 1 == 0 { Fault::BeforeCommit } else { Fault::AfterCommit };
            (random % 1000 < per_mille).then_some(fault)
        });
    }

    /// Removes all planned faults.
    pub fn clear(&self) {
        self.with(|plan| {
            plan.once.clear();
            plan.script = None;
        });
    }

    /// Returns how many faults were injected.
    pub fn injected(&self) -> u64 {
        self.with(|plan| plan.injected)
    }

    fn next(&self, operation: Operation<'_>) -> Option<Fault> {
        self.with(|plan| {
            let chosen = plan.once.iter_mut().position(|(chosen, _)| chosen(operation));
            let fault = match chosen.and_then(|at| plan.once.remove(at)) {
                Some((_, fault)) => Some(fault),
                None => plan.script.as_mut().and_then(|script| script(operation)),
            };
            plan.injected += u64::from(fault.is_some());
            fault
        })
    }

    fn with<T>(&self, what: impl FnOnce(&mut Plan) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faults")
    }
}

/// SplitMix64: random enough to choose faults, and no dependency.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A store that injects the planned [`Faults`].
#[derive(Debug)]
pub struct FaultyStore<S: ?Sized> {
    inner: Arc<S>,
    pub faults: Faults,
    poll_interval: Option<Duration>,
}

impl<S: Store> FaultyStore<S> {
    pub fn new(inner: S) -> Self {
        Self::over(Arc::new(inner))
    }
}

impl<S: Store + ?Sized> FaultyStore<S> {
    pub fn over(inner: Arc<S>) -> Self {
        let poll_interval = inner.poll_interval();
        Self { inner, faults: Faults::new(), poll_interval }
    }

    /// Returns the store as one that other nodes share, and that nodes poll at this interval.
    #[must_use]
    pub fn polled_every(self, interval: Duration) -> Self {
        Self { poll_interval: Some(interval), ..self }
    }

    /// Returns the wrapped store, which does not fail.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn call<T: Send + Unpin + 'static>(
        &self,
        operation: Operation<'_>,
        run: impl FnOnce(&S) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        match self.faults.next(operation) {
            None => run(&self.inner),
            Some(Fault::BeforeCommit) => {
                Reply::ready(Err(StoreError::Unavailable("a fault before the commit".into())))
            }
            Some(Fault::Lost) => {
                Reply::ready(Err(StoreError::Unknown("a fault on the way to the store".into())))
            }
            Some(Fault::AfterCommit) => {
                let reply = run(&self.inner);
                Reply::later(async move {
                    reply.await?;
                    Err(StoreError::Unknown("a fault after the commit".into()))
                })
            }
            Some(Fault::HoldBefore(gate)) => {
                let inner = Arc::clone(&self.inner);
                // A task of its own, so that the operation happens even if the caller drops the
                // reply.
                let task = tokio::spawn(async move {
                    gate.wait_until_open().await;
                    run(&inner).await
                });
                Reply::later(async move {
                    task.await.unwrap_or_else(|error| Err(StoreError::Unknown(error.to_string())))
                })
            }
            Some(Fault::HoldAndFail(gate)) => Reply::later(async move {
                gate.wait_until_open().await;
                Err(StoreError::Unavailable("a fault after a while".into()))
            }),
            Some(Fault::HoldAfter(gate)) => {
                let reply = run(&self.inner);
                Reply::later(async move {
                    let outcome = reply.await;
                    gate.wait_until_open().await;
                    outcome
                })
            }
        }
    }
}

impl<S: Store + ?Sized> Store for FaultyStore<S> {
    fn rules(&self) -> &Rules {
        self.inner.rules()
    }

    fn open(&self, facts: Facts) -> Reply<Opened> {
        let named = facts.clone();
        self.call(Operation::Open(&named), move |store| store.open(facts))
    }

    fn reached_limit(&self, principal: &Principal) -> Reply<Option<Limit>> {
        let principal = principal.clone();
        self.call(Operation::ReachedLimit, move |store| store.reached_limit(&principal))
    }

    fn eviction_sample(
        &self,
        requester: &Principal,
        of: Option<&Principal>,
        from: SessionId,
    ) -> Reply<EvictionSample> {
        let (requester, of) = (requester.clone(), of.cloned());
        self.call(Operation::EvictionSample, move |store| {
            store.eviction_sample(&requester, of.as_ref(), from)
        })
    }

    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome> {
        let named = command.clone();
        self.call(Operation::Apply(session, &named), move |store| store.apply(session, command, now))
    }

    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read> {
        self.call(Operation::Read(session, stream), move |store| store.read(session, stream, after, budget))
    }

    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>> {
        self.call(Operation::Facts(session), move |store| store.facts(session))
    }

    fn holdings(&self, session: SessionId, node: NodeId) -> Reply<Holdings> {
        self.call(Operation::Holdings(session), move |store| store.holdings(session, node))
    }

    fn sweep(&self, now: Time, batch: usize) -> Reply<usize> {
        self.call(Operation::Sweep, move |store| store.sweep(now, batch))
    }

    fn join(&self, node: NodeId, now: Time) -> Reply<()> {
        self.call(Operation::Nodes, move |store| store.join(node, now))
    }

    fn is_alive(&self, node: NodeId) -> Reply<bool> {
        self.call(Operation::Nodes, move |store| store.is_alive(node))
    }

    fn reap_dead_nodes(&self, now: Time) -> Reply<usize> {
        self.call(Operation::Nodes, move |store| store.reap_dead_nodes(now))
    }

    fn leave(&self, node: NodeId, now: Time) -> Reply<()> {
        self.call(Operation::Nodes, move |store| store.leave(node, now))
    }

    fn poll_interval(&self) -> Option<Duration> {
        self.poll_interval
    }

    fn external_change_count(&self) -> Reply<Option<u64>> {
        self.call(Operation::ExternalChangeCount, Store::external_change_count)
    }

    fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.inner.subscribe(subscriber);
    }

    fn ping(&self) -> Reply<()> {
        self.call(Operation::Ping, Store::ping)
    }

    fn usage(&self) -> Reply<Usage> {
        self.call(Operation::Usage, Store::usage)
    }
}
