//! The [`Store`] trait, which every session store implements.

use std::sync::Arc;

use steadfast_session::command::{FailNode, Successor};
use steadfast_session::{
    Command, Facts, Holdings, LastUse, Limit, NodeId, Outcome, Principal, Read, Rules, Session, SessionId,
    Step, StreamNo, Time,
};

use crate::error::StoreError;
use crate::reply::Reply;
use crate::signal::Subscriber;

/// Keeps sessions and applies commands to them.
///
/// Every store guarantees the following:
///
/// - **Atomic commands.** [`Store::apply`] applies one command to one session completely or not at
///   all. Two commands on one session never interleave, whichever nodes send them.
/// - **The same outcomes everywhere.** The outcome of a command is that of
///   [`steadfast_session::Session`] with the store's [`Rules`].
/// - **Honest errors.** [`StoreError::Unavailable`] means that the operation did not happen.
///   If the store does not know, it returns [`StoreError::Unknown`].
/// - **Commit before reply and signal.** A reply is sent, and a signal is published, only after
///   the change is committed. Signals of one session arrive in the order of its commits.
/// - **Order.** Commands on one session take effect in the order in which one caller sends them,
///   even if the caller does not wait for the replies.
/// - **Cancellation safety.** Dropping a [`Reply`] does not undo the operation.
///
/// A store may be shared by several nodes: of one process, of one machine, or of several machines.
/// What survives the end of a process, and which nodes can share the store, depends on the
/// implementation.
///
/// The trait has no default methods, so that a store that wraps another one cannot forget to
/// forward a method. The test suite in `testing` checks these guarantees.
pub trait Store: Send + Sync + 'static {
    /// Returns the rules that this store applies.
    fn rules(&self) -> &Rules;

    /// Opens a session with the id `facts.id`. The session's time starts at `facts.opened_at`.
    fn open(&self, facts: Facts) -> Reply<Opened>;

    /// Returns the limit that would refuse one more session of this principal now, if there is one.
    ///
    /// A caller uses this to avoid work for a session that cannot be opened. The result is a hint:
    /// [`Store::open`] decides, and may apply a limit that this method does not check.
    fn reached_limit(&self, principal: &Principal) -> Reply<Option<Limit>>;

    /// Returns open sessions, from which the caller chooses one to
    /// [`Evict`](steadfast_session::command::Evict), and how many sessions principals have.
    ///
    /// The sessions are a random sample, of one principal (`of`) or of the whole store: those with
    /// the first ids from `from` on. `from` must be random. A store that can choose at random by
    /// itself ignores it. The sample has every session if there are at most
    /// [`EvictionSample::SIZE`].
    fn eviction_sample(
        &self,
        requester: &Principal,
        of: Option<&Principal>,
        from: SessionId,
    ) -> Reply<EvictionSample>;

    /// Applies one command to one session.
    ///
    /// Returns the command's `NoSession` outcome if the session does not exist. A command that
    /// forwards calls to a node that has not joined, or is dead, has no effect and returns
    /// [`Begun::Fenced`](steadfast_session::command::Begun::Fenced) (or the equivalent of the
    /// command).
    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome>;

    /// Reads the events of a stream after the position `after`, up to `budget` bytes.
    ///
    /// Reading works for a while after the session has closed, so that connections can write its
    /// last events.
    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read>;

    /// Returns the immutable facts of a session, or `None` if it does not exist or has closed.
    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>>;

    /// Returns what a node holds in a session: calls, server requests, kept answers, connections.
    ///
    /// This must be cheap. Where [`Store::poll_interval`] is set, nodes call it at that interval
    /// for every session in use.
    fn holdings(&self, session: SessionId, node: NodeId) -> Reply<Holdings>;

    /// Applies expiry to up to `batch` sessions that are due at `now`: closes them, drops expired
    /// answers, removes closed sessions.
    ///
    /// Returns the number of sessions that were due. If that is `batch`, more may be due.
    fn sweep(&self, now: Time, batch: usize) -> Reply<usize>;

    /// Registers a node. The node counts as alive until it leaves or its process ends.
    fn join(&self, node: NodeId, now: Time) -> Reply<()>;

    /// Returns true if a node has joined and counts as alive.
    ///
    /// `true` may be outdated when the caller reads it. `false` is final for everything that the
    /// node held: the node cannot get it back, even if its process turns out to be running.
    fn is_alive(&self, node: NodeId) -> Reply<bool>;

    /// Settles everything that dead nodes held.
    ///
    /// Idempotent calls, and calls that have not started, go to the
    /// [`successor`](Subscriber::successor) that the subscriber of this store names. All other
    /// calls fail. Returns the number of nodes that were reaped completely.
    fn reap_dead_nodes(&self, now: Time) -> Reply<usize>;

    /// Deregisters a node. Its calls fail at once, except those that may be reassigned: they wait
    /// for the node that reaps this one. The node counts as dead from now on.
    fn leave(&self, node: NodeId, now: Time) -> Reply<()>;

    /// Returns how often a waiting reader, and a node with calls or server requests in flight, must
    /// poll for changes that other processes made.
    ///
    /// `None` means that the store signals every change, because no other process uses it.
    fn poll_interval(&self) -> Option<std::time::Duration>;

    /// Returns a counter that changes whenever another process has committed, so that nodes poll
    /// only after a change. `None` if the store has no such counter.
    fn external_change_count(&self) -> Reply<Option<u64>>;

    /// Sets the subscriber that receives this store's signals. Call this once, before the first
    /// command.
    fn subscribe(&self, subscriber: Arc<dyn Subscriber>);

    /// Checks with one cheap request that the store can be reached, for readiness probes. A store
    /// that consists of several servers is reachable if one of them is.
    fn ping(&self) -> Reply<()>;

    /// Returns how many sessions and bytes the store holds. This may be expensive.
    fn usage(&self) -> Reply<Usage>;
}

/// Outcome of [`Store::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The session is open.
    Opened(Arc<Facts>),
    /// Another session has this id. Ids have 192 random bits, so the source of randomness is
    /// broken.
    IdInUse,
    /// The limit refuses another session.
    OverLimit(Limit),
}

/// Some open sessions of a store, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionSample {
    pub sessions: Vec<SampledSession>,
    /// Open sessions of the store.
    pub open: u64,
    /// Principals with an open session. A store may stop counting at [`Self::MAX_PRINCIPALS`].
    pub principals: u64,
    /// Open sessions of the principal that needs room.
    pub own: u64,
    /// A principal with the most open sessions, and how many it has.
    pub largest: Option<(Principal, u64)>,
}

impl EvictionSample {
    /// The largest number of sessions in a sample.
    ///
    /// The least recently used session of a sample of 64 is with high probability among the 5 % of
    /// all sessions that were not used for the longest time.
    pub const SIZE: usize = 64;
    /// Up to this number principals are counted.
    pub const MAX_PRINCIPALS: u64 = 10_000;
}

/// One session of an [`EvictionSample`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledSession {
    pub id: SessionId,
    pub principal: Principal,
    pub last_use: LastUse,
    /// Open sessions of its principal.
    pub held_by_principal: u64,
}

/// What a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Open sessions.
    pub sessions: u64,
    /// Bytes that all sessions hold, including sessions that have closed and are not removed yet.
    pub bytes: u64,
}

/// Applies commands with the type of their outcome.
pub trait StoreExt: Store {
    /// Applies one command like [`Store::apply`] and returns the outcome in the command's own type.
    fn run<S: Step + Send + 'static>(
        &self,
        session: SessionId,
        step: S,
        now: Time,
    ) -> impl Future<Output = Result<S::Outcome, StoreError>> + Send {
        let reply = self.apply(session, step.into_command(), now);
        async move {
            S::outcome(reply.await?).ok_or_else(|| {
                StoreError::Corrupt("the store returned the outcome of another command".into())
            })
        }
    }
}

impl<T: Store + ?Sized> StoreExt for T {}

/// Returns the node that a command forwards calls to: a node other than the one that received the
/// calls or owns them.
pub(crate) fn forwarded_to(command: &Command) -> Option<NodeId> {
    match command {
        Command::Begin(begin) => (begin.owner != begin.node).then_some(begin.owner),
        Command::Forward(forward) => (forward.to != forward.node).then_some(forward.to),
        _ => None,
    }
}

/// Like [`forwarded_to`], but `None` for a retry of a command that has taken effect before: whether
/// its target node is still alive does not matter then.
pub(crate) fn newly_forwarded_to(command: &Command, session: &Session) -> Option<NodeId> {
    let has_begun = matches!(command, Command::Begin(begin) if session.has_begun(begin));
    forwarded_to(command).filter(|_| !has_begun)
}

/// Returns the outcome of a command that forwards calls to a node that is not alive. The command
/// must not be applied: no node would notice that the calls do not run.
pub(crate) fn target_node_missing(command: &Command) -> Outcome {
    use steadfast_session::command as c;
    match command {
        Command::Forward(_) => Outcome::Forward(c::Forwarded::Fenced),
        _ => Outcome::Begin(c::Begun::Fenced),
    }
}

/// Returns the nodes that hold something in the session if this command succeeds.
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
pub(crate) fn nodes_gaining_holdings(command: &Command) -> [Option<NodeId>; 2] {
    match command {
        Command::Begin(begin) => [Some(begin.node), forwarded_to(command)],
        Command::Forward(forward) => [Some(forward.to), None],
        Command::OpenServerRequest(open) => [Some(open.owner), None],
        Command::Attach(attach) => [Some(attach.node), None],
        Command::FailNode(FailNode { successor: Successor::Node(successor), .. }) => [Some(*successor), None],
        _ => [None, None],
    }
}

/// Returns the outcome of a command on a session that does not exist.
pub(crate) fn no_session(command: &Command) -> Outcome {
    use steadfast_session::command as c;
    match command {
        Command::Touch(_) => Outcome::Touch(c::Touched::NoSession),
        Command::Close(_) => Outcome::Close(c::Closed::NoSession),
        Command::Begin(_) => Outcome::Begin(c::Begun::NoSession),
        Command::Start(_) => Outcome::Start(c::Started::NoSession),
        Command::Renotify(_) => Outcome::Renotify(c::Renotified::NoSession),
        Command::Forward(_) => Outcome::Forward(c::Forwarded::NoSession),
        Command::Append(_) => Outcome::Append(c::AppendOutcome::NoSession),
        Command::Finish(_) => Outcome::Finish(c::Finished::NoSession),
        Command::Cancel(_) => Outcome::Cancel(c::Cancelled::NoSession),
        Command::FailNode(_) => Outcome::FailNode(c::NodeFailed::NoSession),
        Command::OpenServerRequest(_) => Outcome::OpenServerRequest(c::ServerRequestOpened::NoSession),
        Command::Answer(_) => Outcome::Answer(c::Answered::NoSession),
        Command::Collect(_) => Outcome::Collect(c::Collected::NoSession),
        Command::Withdraw(_) => Outcome::Withdraw(c::Withdrawn::NoSession),
        Command::Attach(_) => Outcome::Attach(c::Attached::NoSession),
        Command::Detach(_) => Outcome::Detach(c::Detached::NoSession),
        Command::Deliver(_) => Outcome::Deliver(c::Delivered::NoSession),
        Command::PutState(_) => Outcome::PutState(c::StatePut::NoSession),
        Command::Release(_) => Outcome::Release(c::Released::NoSession),
        Command::GetState(_) => Outcome::GetState(c::StateGot::NoSession),
        Command::Evict(_) => Outcome::Evict(c::Evicted::NoSession),
        Command::Sweep(_) => Outcome::Sweep(c::Swept::Remove),
    }
}
