//! The commands of a session and what can come of each.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_wire::RequestId;

use crate::ids::{AskNo, CallNo, ConnNo, NodeId, StreamNo, Time};
use crate::lifecycle::CloseReason;
use crate::limits::Limit;
use crate::tables::{Class, Request, Value};

/// A command together with the type of its outcome, so that a caller gets exactly what it asked for.
pub trait Step: Sized {
    type Outcome;
    fn into_command(self) -> Command;
    /// `None` if the outcome belongs to another command, which no correct store returns.
    fn outcome(outcome: Outcome) -> Option<Self::Outcome>;
}

macro_rules! commands {
    ($($name:ident => $outcome:ident),+ $(,)?) => {
        /// One atomic change of one session.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Command { $($name($name)),+ }

        /// What came of a [`Command`].
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Outcome { $($name($outcome)),+ }

        $(impl Step for $name {
            type Outcome = $outcome;
            fn into_command(self) -> Command { Command::$name(self) }
            fn outcome(outcome: Outcome) -> Option<$outcome> {
                match outcome { Outcome::$name(outcome) => Some(outcome), _ => None }
            }
        })+
    };
}

commands! {
    Touch => Touched,
    Close => Closed,
    Begin => Begun,
    Start => Started,
    Remind => Reminded,
    Pass => Passed,
    Append => AppendOutcome,
    Finish => Finished,
    Cancel => Cancelled,
    FailNode => NodeFailed,
    OpenAsk => AskOpened,
    Answer => Answered,
    Collect => Collected,
    Withdraw => Withdrawn,
    Attach => Attached,
    Detach => Detached,
    Deliver => Delivered,
    PutState => StatePut,
    Release => Released,
    GetState => StateGot,
    Sweep => Swept,
}

/// Note that the client is there, and has something to say that is no call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    Touched,
    /// It is noted. What the client has to say is not wanted for now.
    OverLimit(Limit),
    NoSession,
}

/// End the session. Each call in flight gets an explicit error, each stream its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    pub reason: CloseReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    Closed,
    NoSession,
}

/// Take the calls of one POST: all of them or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    pub ids: Vec<RequestId>,
    /// Where the POST has come to: the node that serves its connection.
    pub node: NodeId,
    /// The node that runs the calls. If it is another one, it finds them in its [`Holdings`](crate::Holdings).
    pub owner: NodeId,
    /// What the calls ask for, in the order of their ids, as far as that is to be kept. A request for which there is no room is not
    /// kept, unless another node is to run it: then nothing is taken.
    pub requests: Vec<Option<Request>>,
    /// A name for this command, never used twice by its node.
    pub attempt: u64,
    /// The same command was sent before and its outcome is not known: if it took effect, say so again.
    pub again: bool,
    /// It is not wanted any more: say what it came to if it was sent before and took effect, and begin nothing.
    pub recall: bool,
    pub duplicates: Duplicates,
    /// The connection gets nothing but the answer, so other messages go to a standalone stream.
    pub answer_only: bool,
    /// Streams of this session that have been written out to their last event since the last command.
    pub delivered: Vec<StreamNo>,
    pub fence: Option<Fence>,
}

impl Begin {
    /// Calls that are run where they have come to, and of which nothing is kept.
    pub fn here(node: NodeId, attempt: u64, ids: Vec<RequestId>) -> Self {
        Self {
            ids,
            node,
            owner: node,
            requests: Vec::new(),
            attempt,
            again: false,
            recall: false,
            duplicates: Duplicates::default(),
            answer_only: false,
            delivered: Vec::new(),
            fence: None,
        }
    }
}

/// The command is for a holder of a lease: it takes effect if the entry of session state that says who holds it is still the
/// one that the sender knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub key: Arc<str>,
    pub version: u64,
}

/// What to do with a request whose id is in flight already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// Refuse it, as the specification wants.
    #[default]
    Reject,
    /// Serve it apart: each POST has its own calls and stream, so nothing can collide.
    Isolate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The calls are numbered from `first` in the order of their ids. The POST's response is attached.
    Begun {
        stream: StreamNo,
        first: CallNo,
        connection: ConnNo,
    },
    /// The calls had begun when this was sent before. Another node runs them or has done so: their answers are to be read from
    /// their stream.
    Taken {
        stream: StreamNo,
    },
    Duplicate(RequestId),
    OverLimit(Limit),
    /// The lease is somebody else's by now.
    Fenced,
    /// It was recalled, and had not taken effect.
    Recalled,
    NoSession,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The stream of a call; once that is answered, a standalone stream. If the call was taken from the node that ran it, what
    /// that node says of it goes nowhere.
    Call(CallNo),
    /// The newest attached standalone stream, or the first one.
    Standalone,
}

/// Append a message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    pub target: Target,
    pub class: Class,
    pub payload: Bytes,
    pub fence: Option<Fence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    Appended {
        stream: StreamNo,
        seq: u64,
    },
    /// The call was taken from its node, or the lease is somebody else's by now.
    Fenced,
    /// The stream, the session or the store is full. Progress and log messages give way; this one cannot.
    Full(Limit),
    NoSession,
}

/// A node is about to run a call that it was given. From now on nobody else may, since it may be done by then, unless it does no
/// harm twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub call: CallNo,
    pub node: NodeId,
    /// Others may do it as before.
    pub again: bool,
    pub fence: Option<Fence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    Started,
    /// It is over, or somebody else's.
    Gone,
    /// The lease is somebody else's by now.
    Fenced,
    NoSession,
}

/// Give a call that a node was given, and has not begun, to whoever holds the lease. It gets a new number: whoever knows the old one
/// has no say any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    pub call: CallNo,
    pub node: NodeId,
    pub to: NodeId,
    pub fence: Option<Fence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    Passed,
    /// It is over, or somebody else's, or was not given.
    Gone,
    /// The lease is somebody else's by now, or its holder is not there.
    Fenced,
    NoSession,
}

/// Tell the nodes that are to run calls once more of those that they have not begun: the first word may be lost. For a node that
/// waits for them, because they came to it or because it serves their connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remind {
    pub node: NodeId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reminded {
    /// So many calls have not begun, as far as the session knows.
    Reminded {
        calls: u64,
    },
    NoSession,
}

/// Answer a call: append the response and remove the call, in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    pub call: CallNo,
    pub payload: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    Finished {
        stream: StreamNo,
        seq: u64,
    },
    /// It was answered, cancelled or lost before.
    AlreadyFinished,
    NoSession,
}

/// Cancel the call that the client names. Its stream gets no answer for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    pub id: RequestId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    Cancelled {
        call: CallNo,
        owner: NodeId,
    },
    /// No such call is in flight: a race that both sides must tolerate.
    Nothing,
    /// Several calls have this id (duplicates are isolated), so none is cancelled.
    Ambiguous,
    NoSession,
}

/// A node is gone: give each of its calls an explicit error or a new owner, and free what it held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailNode {
    pub node: NodeId,
    /// Who takes over the calls that may be done again.
    pub heir: Heir,
}

/// What becomes of the calls of a node that is gone, as far as they may be done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heir {
    /// They fail like the others.
    Nobody,
    /// This node gets them, each under a new number: whoever knows the old one has no say any more.
    Node(NodeId),
    /// They stay as they are, for whoever buries the node.
    Later,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFailed {
    Failed {
        /// Calls that got an error.
        calls: u64,
        /// Calls that the heir has got.
        handed: u64,
        /// Calls that still are the node's.
        left: u64,
    },
    NoSession,
}

/// Send a request to the client and remember who waits for the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAsk {
    pub target: Target,
    pub owner: NodeId,
    /// The request's JSON text from `"method"` on, up to and including the last brace: the id in front of it is
    /// minted here.
    pub rest: Bytes,
    pub fence: Option<Fence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskOpened {
    Opened {
        ask: AskNo,
        stream: StreamNo,
        seq: u64,
    },
    OverLimit(Limit),
    /// The call that wants to ask is not in flight any more.
    CallGone,
    /// The lease is somebody else's by now.
    Fenced,
    NoSession,
}

/// The client has answered an ask. If its asker waits at the node that sends this, the ask is over. If the asker waits at
/// another node, the answer is kept with the ask until that node collects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub ask: AskNo,
    /// Where the answer has come to.
    pub node: NodeId,
    /// A name for this command, never used twice by that node. Sent again, it is told again that the answer is kept.
    pub attempt: u64,
    /// The JSON text of the answer.
    pub message: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The asker waits at this very node, which now has the only answer.
    Answered {
        call: Option<CallNo>,
    },
    /// The asker waits at another node, which finds the answer in its [`Holdings`](crate::Holdings).
    Kept {
        owner: NodeId,
    },
    /// Another answer was first and is kept for the asker.
    Before,
    /// Never asked, answered and taken, or withdrawn.
    Unknown,
    OverLimit(Limit),
    NoSession,
}

/// A node has handed answers that were kept for it to whoever waited. Until it says so they stay, so that a reply that is
/// lost on its way loses no answer; said twice, it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collect {
    pub node: NodeId,
    pub asks: Vec<AskNo>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected {
    Collected,
    NoSession,
}

/// Take an ask back and tell the client that nobody waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withdraw {
    pub ask: AskNo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    Withdrawn,
    Unknown,
    NoSession,
}

/// Attach a connection to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    pub at: Position,
    pub node: NodeId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Right after an event that the client names.
    After { stream: StreamNo, seq: u64 },
    /// A standalone stream that nobody reads: one in which something waits, else the first, else another.
    Standalone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    Attached {
        stream: StreamNo,
        connection: ConnNo,
        after: u64,
    },
    /// No such event was ever sent in this session.
    UnknownEvent,
    /// The stream was finished and is not kept any more.
    Gone,
    OverLimit(Limit),
    NoSession,
}

/// A connection is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detach {
    pub stream: StreamNo,
    pub connection: ConnNo,
    /// The last event that was written to it.
    pub through: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    Detached,
    /// Somebody else is attached by now, or nobody was.
    Stale,
    NoSession,
}

/// A connection has taken everything up to an event and goes on reading: what it has need not be kept when room
/// gets short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    pub stream: StreamNo,
    pub connection: ConnNo,
    pub through: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    Delivered,
    /// Somebody else is attached by now, or nobody was.
    Stale,
    NoSession,
}

/// Write or delete one entry of session state, if it still is what the writer thinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutState {
    pub key: Box<str>,
    /// The version that must be there: `None` for "no entry".
    pub expected: Option<u64>,
    /// `None` deletes.
    pub value: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatePut {
    /// The new version; `None` after a deletion.
    Put {
        version: Option<u64>,
    },
    /// What is there instead.
    Conflict {
        current: Option<Value>,
    },
    OverLimit(Limit),
    NoSession,
}

/// Give a lease up: delete the entry of session state, unless its holder has calls in flight that it may be running, or is about to.
/// Those that it was given and that others may do do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub node: NodeId,
    pub fence: Fence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    Released,
    Busy,
    /// The lease is somebody else's by now.
    Fenced,
    NoSession,
}

/// Read one entry of session state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetState {
    pub key: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateGot {
    Got(Option<Value>),
    /// The session has ended. This is what it left, for whoever has to clear up after it.
    Left(Option<Value>),
    NoSession,
}

/// Do what time has brought about: drop what is not kept any more, end the session if it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    /// Look again then; `None` while nothing can happen by time alone.
    Next(Option<Time>),
    /// Its record can be removed.
    Remove,
}
