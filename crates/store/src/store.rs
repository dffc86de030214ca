//! What every store can do.

use std::sync::Arc;

use steadfast_session::command::{FailNode, Heir};
use steadfast_session::{
    Command, Facts, Holdings, Limit, NodeId, Outcome, Principal, Read, Rules, Session, SessionId, Step,
    StreamNo, Time,
};

use crate::error::StoreError;
use crate::reply::Reply;
use crate::signal::Subscriber;

/// Where sessions live. One call is one atomic step; on every store its outcomes are those of
/// [`steadfast_session::Session`]. Nothing here has a default: a store that wraps another must not forget to pass something on.
pub trait Store: Send + Sync + 'static {
    /// The rules that this store applies.
    fn rules(&self) -> &Rules;

    /// Opens a session under `facts.id`, at `facts.opened_at`.
    fn open(&self, facts: Facts) -> Reply<Opened>;

    /// The bound that would refuse one more session of this principal now, so that nobody begins in vain. A hint: [`Store::open`]
    /// decides, and may know of a bound that this does not look at.
    fn no_room_for(&self, principal: &Principal) -> Reply<Option<Limit>>;

    /// Applies one command. A session that does not exist gives the command's `NoSession` outcome. Calls for another node that
    /// has not joined, or is gone, are not begun: [`Begun::Fenced`](steadfast_session::command::Begun::Fenced).
    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome>;

    /// Reads a stream after a position. Works for a while on a session that has closed, so that connections can
    /// write its last events.
    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read>;

    /// What never changes about a session, or `None` if it does not exist or has closed.
    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>>;

    /// What a node holds of a session. Cheap: nodes ask for it again and again where changes of other processes are not
    /// signalled.
    fn held(&self, session: SessionId, node: NodeId) -> Reply<Holdings>;

    /// Does what time has brought about in up to `batch` sessions. Gives the number that were due, so that a
    /// caller knows to come back for more.
    fn sweep(&self, now: Time, batch: usize) -> Reply<usize>;

    /// Announces a node. It counts as alive until it leaves or its process ends.
    fn join(&self, node: NodeId, now: Time) -> Reply<()>;

    /// Whether a node that has joined still counts as alive. `true` may be out of date by the time it is read; `false` is
    /// final for whatever the node held: a process that comes back is another node, or has to begin anew.
    fn is_alive(&self, node: NodeId) -> Reply<bool>;

    /// Sees to everything that nodes left behind that are gone: calls that may be done again go to the
    /// [`heir`](Subscriber::heir), all else is failed. Gives how many nodes those were.
    fn bury_dead_nodes(&self, now: Time) -> Reply<usize>;

    /// A node goes in good order: whatever it still holds is failed at once, but for calls that may be done again. Those wait
    /// for whoever buries the node, which counts as dead from now on.
    fn leave(&self, node: NodeId, now: Time) -> Reply<()>;

    /// How often a waiting reader, and a node with calls or asks in flight, looks for changes that other processes made. `None` where every change is
    /// signalled because there is no other process.
    fn poll_interval(&self) -> Option<std::time::Duration>;

    /// A number that is another one once other processes have changed anything, so that nobody looks for changes that
    /// cannot be there. `None` where that is not known.
    fn changes_elsewhere(&self) -> Reply<Option<u64>>;

    /// Says who hears of changes. To be called once, before the first command.
    fn subscribe(&self, subscriber: Arc<dyn Subscriber>);

    /// Whether the store answers at all: one cheap question, for those who have to say again and again whether this process is
    /// of use. A store in parts answers if one of them does.
    fn answers(&self) -> Reply<()>;

    /// How much there is. May have to ask for much.
    fn usage(&self) -> Reply<Usage>;
}

/// What came of [`Store::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    Opened(Arc<Facts>),
    /// The id is taken. With 192 random bits that means a broken source of randomness.
    Taken,
    OverLimit(Limit),
}

/// How much a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub sessions: u64,
    pub bytes: u64,
}

/// Commands with the type of their outcome.
pub trait StoreExt: Store {
    fn run<S: Step + Send + 'static>(
        &self,
        session: SessionId,
        step: S,
        now: Time,
    ) -> impl Future<Output = Result<S::Outcome, StoreError>> + Send {
        let reply = self.apply(session, step.into_command(), now);
        async move {
            S::outcome(reply.await?)
                .ok_or_else(|| StoreError::Corrupt("an outcome of another command".into()))
        }
    }
}

impl<T: Store + ?Sized> StoreExt for T {}

/// The node that a command gives calls to, if that is another one than the one that they came to, or that has them.
pub(crate) fn mailed_to(command: &Command) -> Option<NodeId> {
    match command {
        Command::Begin(begin) => (begin.owner != begin.node).then_some(begin.owner),
        Command::Pass(pass) => (pass.to != pass.node).then_some(pass.to),
        _ => None,
    }
}

/// The same, but for a command that is sent again and has taken effect before: then it does not matter who is there by now.
pub(crate) fn newly_mailed_to(command: &Command, session: &Session) -> Option<NodeId> {
    let has_begun = matches!(command, Command::Begin(begin) if session.has_begun(begin));
    mailed_to(command).filter(|_| !has_begun)
}

/// The outcome of a command that gives calls to a node that is not there: nobody would ever find out that it does not run them.
pub(crate) fn not_there(command: &Command) -> Outcome {
    use steadfast_session::command as c;
    match command {
        Command::Pass(_) => Outcome::Pass(c::Passed::Fenced),
        _ => Outcome::Begin(c::Begun::Fenced),
    }
}

/// The nodes that hold something of a session by this command, if it succeeds.
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
pub(crate) fn holders(command: &Command) -> [Option<NodeId>; 2] {
    match command {
        Command::Begin(begin) => [Some(begin.node), mailed_to(command)],
        Command::Pass(pass) => [Some(pass.to), None],
        Command::OpenAsk(open) => [Some(open.owner), None],
        Command::Attach(attach) => [Some(attach.node), None],
        Command::FailNode(FailNode { heir: Heir::Node(heir), .. }) => [Some(*heir), None],
        _ => [None, None],
    }
}

/// The outcome of a command on a session that does not exist.
pub(crate) fn no_session(command: &Command) -> Outcome {
    use steadfast_session::command as c;
    match command {
        Command::Touch(_) => Outcome::Touch(c::Touched::NoSession),
        Command::Close(_) => Outcome::Close(c::Closed::NoSession),
        Command::Begin(_) => Outcome::Begin(c::Begun::NoSession),
        Command::Start(_) => Outcome::Start(c::Started::NoSession),
        Command::Remind(_) => Outcome::Remind(c::Reminded::NoSession),
        Command::Pass(_) => Outcome::Pass(c::Passed::NoSession),
        Command::Append(_) => Outcome::Append(c::AppendOutcome::NoSession),
        Command::Finish(_) => Outcome::Finish(c::Finished::NoSession),
        Command::Cancel(_) => Outcome::Cancel(c::Cancelled::NoSession),
        Command::FailNode(_) => Outcome::FailNode(c::NodeFailed::NoSession),
        Command::OpenAsk(_) => Outcome::OpenAsk(c::AskOpened::NoSession),
        Command::Answer(_) => Outcome::Answer(c::Answered::NoSession),
        Command::Collect(_) => Outcome::Collect(c::Collected::NoSession),
        Command::Withdraw(_) => Outcome::Withdraw(c::Withdrawn::NoSession),
        Command::Attach(_) => Outcome::Attach(c::Attached::NoSession),
        Command::Detach(_) => Outcome::Detach(c::Detached::NoSession),
        Command::Deliver(_) => Outcome::Deliver(c::Delivered::NoSession),
        Command::PutState(_) => Outcome::PutState(c::StatePut::NoSession),
        Command::Release(_) => Outcome::Release(c::Released::NoSession),
        Command::GetState(_) => Outcome::GetState(c::StateGot::NoSession),
        Command::Sweep(_) => Outcome::Sweep(c::Swept::Remove),
    }
}
