//! What a database must be able to do so that sessions can live in it.
//!
//! A session is a version, a set of small rows and a set of events, all of which belong together. A database knows
//! nothing of what they mean: it commits a [`Write`] if the session still has the version that the writer saw, and gives
//! everything to a writer who came too late. Whatever lists sessions or nodes stands beside them and is a hint; a hint
//! that is lost delays something, and the session itself is the truth.

use bytes::Bytes;
use steadfast_session::{Class, Facts, Limit, NodeId, Principal, SessionId, StreamNo, Time};

use crate::error::StoreError;

pub(crate) type Answer<T> = Result<T, StoreError>;

/// How many names of commits a session remembers. Whoever does not know what became of its commit can find out for as
/// long as no more than this many others have followed.
pub(crate) const ATTEMPTS: usize = 5;

/// Which version of a session: its number, and the names of the last commits, the newest last: that which made this version,
/// and those before it. The number alone does not do: a database that loses its last commits gives their numbers to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) version: u64,
    pub(crate) attempts: Vec<u64>,
}

impl Stamp {
    /// The version after this one, made by a commit of this name.
    pub(crate) fn next(&self, attempt: u64) -> Self {
        let kept = self.attempts.len().saturating_sub(ATTEMPTS - 1);
        let attempts = self.attempts[kept..].iter().copied().chain([attempt]).collect();
        Self { version: self.version + 1, attempts }
    }

    /// Whether a commit of this name has made the version after `seen`. `None` if nobody can tell any more.
    pub(crate) fn tells_of(&self, seen: u64, attempt: u64) -> Option<bool> {
        let since = usize::try_from(self.version.checked_sub(seen + 1)?).ok()?;
        let at = self.attempts.len().checked_sub(since + 1)?;
        Some(self.attempts[at] == attempt)
    }
}

/// A session as the lists name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) session: SessionId,
    pub(crate) principal: Principal,
}

impl Listed {
    pub(crate) fn of(facts: &Facts) -> Self {
        Self { session: facts.id, principal: facts.principal.clone() }
    }
}

/// A session as a database holds it.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) stamp: Stamp,
    pub(crate) rows: Vec<(Bytes, Bytes)>,
    /// Its events without their payloads.
    pub(crate) events: Vec<EventKey>,
}

/// An event's place and what is known of it without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventKey {
    pub(crate) stream: StreamNo,
    pub(crate) seq: u64,
    pub(crate) class: Class,
    pub(crate) size: u32,
}

/// One commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    /// The version that the session must have; the first one, 0, if it must not exist.
    pub(crate) seen: &'a Stamp,
    /// `None` to write nothing and only learn whether the session still has that version.
    pub(crate) next: Option<&'a Next>,
}

#[derive(Debug, Default)]
pub(crate) struct Next {
    pub(crate) stamp: Stamp,
    pub(crate) put: Vec<(Bytes, Bytes)>,
    pub(crate) drop: Vec<Bytes>,
    pub(crate) append: Vec<(EventKey, Bytes)>,
    pub(crate) forget: Vec<EventKey>,
    /// The session closes.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "the disk of another database has no such rule")
    )]
    pub(crate) closes: bool,
}

impl Next {
    /// Whether it ends something: a call, an ask, a stream, the session. A database without room has to take it, because it
    /// makes room, or leads to that, and somebody waits for it.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "the disk of another database has no such rule")
    )]
    pub(crate) fn is_relief(&self) -> bool {
        self.closes || !self.drop.is_empty() || !self.forget.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.drop.is_empty() && self.append.is_empty() && self.forget.is_empty()
    }
}

#[derive(Debug)]
pub(crate) enum Committed {
    Done,
    /// The session has another version, or does not exist.
    Beaten {
        session: Option<Snapshot>,
        /// The commit may have reached the database more than once: what was faster may be the same commit.
        perhaps_by_itself: bool,
    },
}

#[derive(Debug)]
pub(crate) enum Loaded {
    /// It still has the version that was seen.
    Same,
    Newer(Snapshot),
    Missing,
}

/// The payloads of events, in the order in which they were asked for.
#[derive(Debug)]
pub(crate) enum Payloads {
    Read(Vec<Option<Bytes>>),
    /// The session has changed: what to ask for has to be thought over.
    Newer(Snapshot),
    Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    /// It is counted already.
    Known,
    OverLimit(Limit),
}

/// What may be counted at admission.
#[derive(Debug)]
pub(crate) struct Admit<'a> {
    pub(crate) listed: &'a Listed,
    pub(crate) due: Time,
    pub(crate) sessions: u64,
    pub(crate) sessions_per_principal: u64,
}

/// That a node may hold something of a session from this version on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Presence {
    pub(crate) session: SessionId,
    pub(crate) node: NodeId,
    pub(crate) version: u64,
    /// The node is one of this process: if it was struck off the list, it is on it again.
    pub(crate) own: bool,
}

/// What one node tells another, as a short text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// Something has happened to this session.
    pub(crate) session: SessionId,
    /// And there is a call in it for the node, which may know nothing of the session.
    pub(crate) errand: bool,
}

impl Told {
    const ERRAND: char = '!';

    pub(crate) fn text(self) -> String {
        let mut text = self.session.text();
        if self.errand {
            text.push(Self::ERRAND);
        }
        text
    }

    /// Reads what [`Told::text`] wrote.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (session, errand) = match text.strip_suffix(Self::ERRAND) {
            Some(session) => (session, true),
            None => (text, false),
        };
        SessionId::parse(session).map(|session| Self { session, errand })
    }
}

/// Sessions that count against the limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSessions {
    pub(crate) all: u64,
    /// Those of one principal, where one question tells both.
    pub(crate) own: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Count {
    /// Sessions that count against the limits.
    pub(crate) open: u64,
    /// All that are listed, closed ones included.
    pub(crate) listed: u64,
    /// The session row of all of them or, if there are too many, of some.
    pub(crate) sample: Vec<Bytes>,
}

/// A database. Every method is one request, or few that do not wait for each other. An outcome that is not known is
/// [`StoreError::Unknown`]; the caller repeats the commit, which is safe because of the version and the attempt in it.
pub(crate) trait Backing: 'static {
    async fn load(&self, session: SessionId, seen: &Stamp) -> Answer<Loaded>;
    async fn commit(&self, session: SessionId, write: &Write<'_>) -> Answer<Committed>;
    async fn payloads(&self, session: SessionId, seen: &Stamp, events: &[EventKey]) -> Answer<Payloads>;
    /// Removes the session if it has this version. `false` if it has another.
    async fn remove(&self, session: SessionId, seen: &Stamp) -> Answer<bool>;

    /// Counts a session and puts it on the agenda, before it is made.
    async fn admit(&self, admit: &Admit<'_>) -> Answer<Admission>;
    /// How many are counted now, without counting one more.
    async fn open_sessions(&self, principal: &Principal) -> Answer<OpenSessions>;
    /// A session has closed and counts no more.
    async fn release(&self, listed: &Listed) -> Answer<()>;
    /// A session is gone: it stands nowhere any more, nor among what these nodes may hold.
    async fn forget(&self, listed: &Listed, present: &[NodeId]) -> Answer<()>;
    /// What cannot be read of a sample is left out of it.
    async fn count(&self) -> Answer<Count>;
    /// The cheapest question there is, to any part of the database.
    async fn ping(&self) -> Answer<()>;

    /// Looks at a session no later than then.
    async fn schedule(&self, listed: &Listed, at: Time) -> Answer<()>;
    /// Moves a session on the agenda, if it still stands where it was seen.
    async fn reschedule(&self, listed: &Listed, seen: Time, at: Time) -> Answer<()>;
    async fn due(&self, now: Time, batch: usize) -> Answer<Vec<(Listed, Time)>>;

    /// Shows that these nodes are alive. Does not wait for other requests, and not for long: it is repeated.
    async fn beat(&self, nodes: &[NodeId]) -> Answer<()>;
    async fn is_alive(&self, node: NodeId) -> Answer<bool>;
    async fn dead_nodes(&self) -> Answer<Vec<NodeId>>;
    /// To be called before the commit: then nobody holds what cannot be found.
    async fn present(&self, presence: Presence) -> Answer<()>;
    /// Some of the sessions in which a node may hold something.
    async fn sessions_of(&self, node: NodeId, batch: usize) -> Answer<Vec<SessionId>>;
    /// A node holds nothing in these sessions as of these versions. If there is no other session and the node is gone, or
    /// wants to be, strikes it off the list and says so. If there is another and it wants to be gone, it counts as dead from
    /// now on.
    async fn strike(&self, node: NodeId, done: &[(SessionId, u64)], leaves: bool) -> Answer<bool>;

    /// Tells nodes something. May be lost.
    async fn tell(&self, nodes: &[NodeId], told: Told) -> Answer<()>;
    /// From now on, what others tell this node is handed to whoever opened this database.
    async fn hear(&self, node: NodeId) -> Answer<()>;
    async fn stop_hearing(&self, node: NodeId) -> Answer<()>;
}
