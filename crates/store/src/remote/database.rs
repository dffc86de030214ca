//! The [`Database`] trait: the operations that a database must offer to keep sessions.
//!
//! In a database, a session is a version, a set of small rows and a set of events. The database
//! does not interpret them. It commits a [`CommitRequest`] if the session still has the version
//! that the writer expects. Otherwise it returns the current session.
//!
//! Beside the sessions, a database has indexes: the sweep schedule, the counts of open sessions,
//! the list of nodes, and for each node the sessions in which it may hold something. An index entry
//! is a hint. If an entry is wrong or late, some work is delayed; the session itself is always
//! right.

use bytes::Bytes;
use steadfast_session::{Class, Facts, Limit, NodeId, Principal, SessionId, StreamNo, Time};

use crate::error::StoreError;

pub(crate) type StoreResult<T> = Result<T, StoreError>;

/// How many commit names a session remembers. A writer that does not know whether its commit
/// happened can find out as long as fewer than this many other commits have followed.
pub(crate) const REMEMBERED_COMMITS: usize = 5;

/// Identifies one version of a session.
///
/// The version number alone is not enough: a database that loses its last commits, for example in a
/// failover, gives the same numbers to other commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VersionStamp {
    /// The number of the version. 0 means that the session does not exist yet.
    pub(crate) version: u64,
    /// The random names of the last commits. The last name is that of the commit that made this
    /// version.
    pub(crate) commit_names: Vec<u64>,
}

impl VersionStamp {
    /// Returns the stamp of the version that a commit with this name makes from this one.
    pub(crate) fn next(&self, commit_name: u64) -> Self {
        let kept = self.commit_names.len().saturating_sub(REMEMBERED_COMMITS - 1);
        let commit_names = self.commit_names[kept..].iter().copied().chain([commit_name]).collect();
        Self { version: self.version + 1, commit_names }
    }

    /// Returns whether the commit with this name made the version after `expected`. Returns `None`
    /// if the stamp does not reach back that far.
    pub(crate) fn contains_commit(&self, expected: u64, commit_name: u64) -> Option<bool> {
        let since = usize::try_from(self.version.checked_sub(expected + 1)?).ok()?;
        let at = self.commit_names.len().checked_sub(since + 1)?;
        Some(self.commit_names[at] == commit_name)
    }
}

/// Identifies a session in the indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexKey {
    pub(crate) session: SessionId,
    pub(crate) principal: Principal,
}

impl IndexKey {
    pub(crate) fn of(facts: &Facts) -> Self {
        Self { session: facts.id, principal: facts.principal.clone() }
    }
}

/// A session as the database holds it.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) stamp: VersionStamp,
    pub(crate) rows: Vec<(Bytes, Bytes)>,
    /// The events without their payloads.
    pub(crate) events: Vec<EventKey>,
}

/// The position of an event, and what the event index says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventKey {
    pub(crate) stream: StreamNo,
    pub(crate) seq: u64,
    pub(crate) class: Class,
    pub(crate) size: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitRequest<'a> {
    /// The version that the session must have. Version 0 means that it must not exist.
    pub(crate) expected: &'a VersionStamp,
    /// What to write. `None` writes nothing and only checks the version.
    pub(crate) new_version: Option<&'a NewVersion>,
}

/// The changes that make the next version of a session.
#[derive(Debug, Default)]
pub(crate) struct NewVersion {
    pub(crate) stamp: VersionStamp,
    pub(crate) put_rows: Vec<(Bytes, Bytes)>,
    pub(crate) delete_rows: Vec<Bytes>,
    pub(crate) append_events: Vec<(EventKey, Bytes)>,
    pub(crate) delete_events: Vec<EventKey>,
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only Redis can be full and still write"))]
    pub(crate) closes_session: bool,
}

impl NewVersion {
    /// Returns true if the commit ends something: a call, a server request, a stream, the session.
    /// A database that is full must accept it, because it frees space, or leads to that, and a
    /// client waits for it.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only Redis can be full and still write"))]
    pub(crate) fn frees_space(&self) -> bool {
        self.closes_session || !self.delete_rows.is_empty() || !self.delete_events.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.put_rows.is_empty()
            && self.delete_rows.is_empty()
            && self.append_events.is_empty()
            && self.delete_events.is_empty()
    }
}

#[derive(Debug)]
pub(crate) enum CommitOutcome {
    Committed,
    /// The session does not have the expected version, or does not exist.
    Conflict {
        current: Option<Snapshot>,
        /// True if the database may have received the request more than once. Then the conflict may
        /// be with this same commit.
        may_be_own_commit: bool,
    },
}

#[derive(Debug)]
pub(crate) enum LoadOutcome {
    /// The session has the version that the caller knows.
    Unchanged,
    Changed(Snapshot),
    Missing,
}

/// Result of reading the payloads of events.
#[derive(Debug)]
pub(crate) enum Payloads {
    /// The payloads, in the order of the request.
    Read(Vec<Option<Bytes>>),
    /// The session has another version. The caller must choose the events anew.
    Changed(Snapshot),
    Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    /// The session was counted before.
    AlreadyCounted,
    OverLimit(Limit),
}

/// A request to count one more session.
#[derive(Debug)]
pub(crate) struct AdmissionRequest<'a> {
    pub(crate) index_key: &'a IndexKey,
    /// The time of the first sweep.
    pub(crate) due: Time,
    /// The limit on all open sessions.
    pub(crate) sessions: u64,
    /// The limit on the open sessions of the principal.
    pub(crate) sessions_per_principal: u64,
}

/// States that a node may hold something in a session, as of this version and later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Presence {
    pub(crate) session: SessionId,
    pub(crate) node: NodeId,
    pub(crate) version: u64,
    /// True if the node belongs to this process. Then the database also puts it back on the list of
    /// nodes if it is not there, because the process is alive.
    pub(crate) is_local: bool,
}

/// How a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeExit {
    /// It has sent no heartbeat for too long.
    Dead,
    /// It deregisters itself.
    Leaving,
}

/// A short message from one node to another: look at this session. A lost hint only causes a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangeHint {
    pub(crate) session: SessionId,
    /// The session has a call that was forwarded to the receiving node, which may not know the
    /// session.
    pub(crate) has_forwarded_call: bool,
}

impl ChangeHint {
    const FORWARDED_CALL_SUFFIX: char = '!';

    /// Returns the hint as text, as databases transport it.
    pub(crate) fn text(self) -> String {
        let mut text = self.session.text();
        if self.has_forwarded_call {
            text.push(Self::FORWARDED_CALL_SUFFIX);
        }
        text
    }

    /// Parses the text of a hint. Returns `None` if it is malformed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (session, has_forwarded_call) = match text.strip_suffix(Self::FORWARDED_CALL_SUFFIX) {
            Some(session) => (session, true),
            None => (text, false),
        };
        SessionId::parse(session).map(|session| Self { session, has_forwarded_call })
    }
}

/// Sessions that count toward the limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSessionCounts {
    pub(crate) total: u64,
    /// The sessions of one principal. `None` if the database would need a second request for it.
    pub(crate) of_principal: Option<u64>,
}

/// Data from which the usage of the store is computed.
#[derive(Debug)]
pub(crate) struct UsageSample {
    /// Sessions that count toward the limits.
    pub(crate) open: u64,
    /// All sessions, including closed ones that are not removed yet.
    pub(crate) stored: u64,
    /// The `meta` rows of all sessions or, if there are too many, of some.
    pub(crate) meta_rows: Vec<Bytes>,
}

/// The rows from which an eviction sample is made.
#[derive(Debug)]
pub(crate) struct EvictionRows {
    /// Sessions, the number of open sessions of their principal, and their `meta` row.
    pub(crate) sessions: Vec<(IndexKey, u64, Bytes)>,
    pub(crate) open: u64,
    pub(crate) principals: u64,
    pub(crate) own: u64,
    pub(crate) largest: Option<(Principal, u64)>,
}

/// A database that keeps sessions.
///
/// Every method is one request, or a few that do not wait for each other. If the database does not
/// know whether a request took effect, the method returns [`StoreError::Unknown`]. The caller then
/// repeats the request. Repeating a commit is safe because the request contains the expected
/// version and the name of the commit.
pub(crate) trait Database: 'static {
    /// Loads a session unless it still has the version `known`.
    async fn load(&self, session: SessionId, known: &VersionStamp) -> StoreResult<LoadOutcome>;

    /// Commits to a session if it has the expected version.
    async fn commit(&self, session: SessionId, request: &CommitRequest<'_>) -> StoreResult<CommitOutcome>;

    /// Reads the payloads of events if the session has the version `expected`.
    async fn read_payloads(
        &self,
        session: SessionId,
        expected: &VersionStamp,
        events: &[EventKey],
    ) -> StoreResult<Payloads>;

    /// Removes a session if it has the version `expected`. Returns false if it has another version.
    async fn remove(&self, session: SessionId, expected: &VersionStamp) -> StoreResult<bool>;

    /// Counts a session and adds it to the sweep schedule. Called before the session is created.
    async fn admit(&self, request: &AdmissionRequest<'_>) -> StoreResult<Admission>;

    /// Returns how many sessions count toward the limits.
    async fn count_open_sessions(&self, principal: &Principal) -> StoreResult<OpenSessionCounts>;

    /// Returns the rows of an eviction sample, as
    /// [`Store::eviction_sample`](crate::Store::eviction_sample) describes it.
    async fn eviction_rows(
        &self,
        requester: &Principal,
        of: Option<&Principal>,
        from: SessionId,
    ) -> StoreResult<EvictionRows>;

    /// Stops counting a session that has closed.
    async fn mark_closed(&self, index_key: &IndexKey) -> StoreResult<()>;

    /// Deletes all index entries of a session that does not exist any more, including those of the
    /// nodes in `present`.
    async fn remove_from_indexes(&self, index_key: &IndexKey, present: &[NodeId]) -> StoreResult<()>;

    /// Returns the counts and a sample of sessions. The sample leaves out sessions that cannot be
    /// read at the moment.
    async fn sample_usage(&self) -> StoreResult<UsageSample>;

    /// Sends the cheapest possible request to any server of the database.
    async fn ping(&self) -> StoreResult<()>;

    /// Schedules the next sweep of a session for `at`, unless it is scheduled earlier.
    async fn schedule(&self, index_key: &IndexKey, at: Time) -> StoreResult<()>;

    /// Moves the next sweep of a session from `scheduled` to `at`, if it is still at `scheduled`.
    async fn reschedule(&self, index_key: &IndexKey, scheduled: Time, at: Time) -> StoreResult<()>;

    /// Returns up to `batch` sessions whose sweep is due, with the time of the schedule.
    async fn due_sessions(&self, now: Time, batch: usize) -> StoreResult<Vec<(IndexKey, Time)>>;

    /// Records that these nodes are alive. This must not wait for other requests, and must fail
    /// soon if there is no reply: the caller repeats it.
    async fn send_heartbeat(&self, nodes: &[NodeId]) -> StoreResult<()>;

    /// Returns true if the node is on the list of nodes and has sent heartbeats recently.
    async fn is_alive(&self, node: NodeId) -> StoreResult<bool>;

    /// Returns the nodes that have sent no heartbeat for too long, and those that have left and are
    /// not reaped yet.
    async fn dead_nodes(&self) -> StoreResult<Vec<NodeId>>;

    /// Records that a node may hold something in a session. Called before the commit, so that
    /// everything that a node holds can be found when the node dies.
    async fn record_presence(&self, presence: Presence) -> StoreResult<()>;

    /// Returns up to `batch` sessions in which a node may hold something.
    async fn sessions_of_node(&self, node: NodeId, batch: usize) -> StoreResult<Vec<SessionId>>;

    /// Deletes the presence of a node in `released` sessions, unless it was recorded for a later
    /// version than the given one.
    ///
    /// If no presence is left, and the node is dead or leaving, this also removes the node from the
    /// list of nodes and returns true. If presences are left and the node is leaving, the node
    /// counts as dead from now on.
    async fn delist_node(
        &self,
        node: NodeId,
        released: &[(SessionId, u64)],
        exit: NodeExit,
    ) -> StoreResult<bool>;

    /// Sends a hint to nodes. The hint may be lost.
    async fn send_hint(&self, nodes: &[NodeId], hint: ChangeHint) -> StoreResult<()>;

    /// Starts to receive hints for a node. Hints arrive at the channel that was passed when this
    /// database was opened.
    async fn subscribe_node(&self, node: NodeId) -> StoreResult<()>;

    /// Stops receiving hints for a node.
    async fn unsubscribe_node(&self, node: NodeId) -> StoreResult<()>;
}
