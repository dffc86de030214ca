//! Applies commands to one session: in memory, then committed to the database.
//!
//! If another process has committed first, the database returns the newer session, and the commands
//! are applied again to that.

use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use steadfast_session::command::{FailNode, Sweep};
use steadfast_session::{Changes, Command, Lifecycle, NodeId, Outcome, SessionId, Time};

use super::cached_session::{CachedSession, IndexEntries, grants_holdings, has_remaining_holdings};
use super::database::{
    ChangeHint, CommitOutcome, CommitRequest, Database, IndexKey, LoadOutcome, NewVersion, Presence,
    Snapshot, StoreResult, VersionStamp,
};
use super::external_changes::LocalHoldings;
use super::job::{AppliedCommand, QueuedCommand};
use super::worker::Worker;
use crate::error::StoreError;
use crate::signal::SessionUpdate;
use crate::store::{newly_forwarded_to, no_session, nodes_gaining_holdings, target_node_missing};

/// How often commands are applied again because another process committed first. Each conflict
/// means that another process made progress.
const MAX_CONFLICT_RETRIES: u32 = 64;

/// After this many conflicts the worker waits for a random time before it retries, so that two
/// processes do not collide again and again.
const IMMEDIATE_RETRIES: u32 = 3;

/// What a group of commands did to a session in memory.
struct AppliedGroup {
    outcomes: Vec<Outcome>,
    changes: Vec<Changes>,
    new_version: NewVersion,
    commit_name: u64,
    /// Nodes that hold something in the session from now on and did not before.
    new_nodes: Vec<NodeId>,
    /// The session must be swept earlier than scheduled.
    is_due_earlier: bool,
}

/// What became of a commit.
pub(crate) enum CommitVerdict {
    Committed,
    /// An earlier try of this commit had taken effect, and other commits have followed.
    CommittedEarlier(Snapshot),
    /// Another process committed first. `None` if the session does not exist any more.
    Conflict(Option<Snapshot>),
}

impl<D: Database> Worker<D> {
    /// Applies commands to a session and sends their results.
    pub(crate) async fn run_commands(self: Rc<Self>, id: SessionId, commands: Vec<QueuedCommand>) {
        match self.apply_and_commit(id, &commands).await {
            Ok(Some((outcomes, version, check_at))) => {
                for (queued, outcome) in commands.into_iter().zip(outcomes) {
                    queued.to.send(Ok(AppliedCommand { outcome, version: Some(version), check_at }));
                }
            }
            Ok(None) => {
                for queued in commands {
                    let outcome = no_session(&queued.command);
                    queued.to.send(Ok(AppliedCommand { outcome, version: None, check_at: Time(0) }));
                }
            }
            Err(error) => commands.into_iter().for_each(|queued| queued.to.send(Err(error.clone()))),
        }
    }

    /// Returns the outcomes, the version that they were committed in, and the time of the next
    /// sweep. Returns `None` if the session does not exist.
    async fn apply_and_commit(
        self: &Rc<Self>,
        id: SessionId,
        commands: &[QueuedCommand],
    ) -> StoreResult<Option<(Vec<Outcome>, u64, Time)>> {
        let mut cached = match self.take_cached(&id) {
            Some(cached) => cached,
            None => match self.load(id).await? {
                Some(cached) => cached,
                None => return Ok(None),
            },
        };
        for retries in 0..MAX_CONFLICT_RETRIES {
            // From here on the copy is out of the cache until the commit shows that it is right.
            let missing_targets = self.missing_targets(id, &cached, commands).await?;
            let applied = self.apply(&mut cached, commands, &missing_targets);
            match self.commit(id, &cached, &applied).await? {
                CommitVerdict::Committed => {
                    let outcomes = self.publish_commit(id, &mut cached, applied).await;
                    let (version, check_at) = (cached.stamp.version, cached.index_entries.check_at);
                    self.put_cached(id, cached);
                    return Ok(Some((outcomes, version, check_at)));
                }
                CommitVerdict::CommittedEarlier(snapshot) => {
                    let version = cached.stamp.version + 1;
                    let outcomes = self.publish_commit(id, &mut cached, applied).await;
                    let check_at = cached.index_entries.check_at;
                    let newer = self.restore(id, snapshot)?;
                    self.put_cached(id, newer);
                    return Ok(Some((outcomes, version, check_at)));
                }
                CommitVerdict::Conflict(Some(snapshot)) => cached = self.restore(id, snapshot)?,
                CommitVerdict::Conflict(None) => {
                    self.signal_external_changes(id, None);
                    return Ok(None);
                }
            }
            if retries >= IMMEDIATE_RETRIES {
                let millis = self.new_commit_name() % (1 + u64::from(retries.min(16)));
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
        }
        self.put_cached(id, cached);
        Err(StoreError::Unavailable("other processes keep changing this session; gave up retrying".into()))
    }

    /// Returns the nodes that the commands forward calls to and that are not alive.
    ///
    /// A node that the session already lists as present needs no check: it is on the list of nodes,
    /// and is reaped if it is dead. For any other node the presence is recorded before the check.
    /// Then the node cannot be delisted without the calls that it is about to get.
    async fn missing_targets(
        &self,
        id: SessionId,
        cached: &CachedSession,
        commands: &[QueuedCommand],
    ) -> StoreResult<Vec<NodeId>> {
        let mut missing = Vec::new();
        let targets =
            commands.iter().filter_map(|queued| newly_forwarded_to(&queued.command, &cached.session));
        for target in targets {
            let is_local = self.local_nodes.borrow().contains(&target);
            if is_local || missing.contains(&target) || cached.index_entries.present.contains(&target) {
                continue;
            }
            let presence =
                Presence { session: id, node: target, version: cached.stamp.version + 1, is_local };
            self.with_retry(|| self.database.record_presence(presence)).await?;
            if !self.with_retry(|| self.database.is_alive(target)).await? {
                missing.push(target);
            }
        }
        Ok(missing)
    }

    /// Returns the command to apply. A command that reaps a node gets the successor that the
    /// subscriber names for this session.
    fn resolve_successor(&self, cached: &CachedSession, queued: &QueuedCommand) -> Command {
        match &queued.command {
            Command::FailNode(FailNode { node, .. }) if queued.reaps => {
                let successor = self.signal_sink.successor(cached.session.facts());
                Command::FailNode(FailNode { node: *node, successor })
            }
            command => command.clone(),
        }
    }

    fn apply(
        &self,
        cached: &mut CachedSession,
        commands: &[QueuedCommand],
        missing_targets: &[NodeId],
    ) -> AppliedGroup {
        let before = (cached.session.held_bytes(), cached.index_entries.clone());
        let (mut outcomes, mut changes, mut new_nodes) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_due_earlier = false;
        for queued in commands {
            let mut one = Changes::default();
            let command = self.resolve_successor(cached, queued);
            let nodes = nodes_gaining_holdings(&command);
            let is_sweep = matches!(command, Command::Sweep(Sweep));
            let forwarded_to = newly_forwarded_to(&command, &cached.session);
            let outcome = if forwarded_to.is_some_and(|target| missing_targets.contains(&target)) {
                target_node_missing(&command)
            } else {
                cached.session.apply(command, queued.now, &self.rules, &mut one)
            };
            let present = &mut cached.index_entries.present;
            for node in nodes.into_iter().flatten() {
                if grants_holdings(&outcome) && !present.contains(&node) {
                    present.push(node);
                    new_nodes.push(node);
                }
            }
            if let Some(node) = queued.delists.filter(|_| !has_remaining_holdings(&outcome)) {
                present.retain(|present| *present != node);
                new_nodes.retain(|new_node| *new_node != node);
            }
            let check_at = self.check_at(cached, queued.now);
            // Reschedule only if the session is due earlier than scheduled. If it is due later, the
            // scheduled sweep moves it, so that a busy session is not rescheduled with every
            // command.
            if is_sweep || check_at < cached.index_entries.check_at {
                is_due_earlier |= check_at < cached.index_entries.check_at;
                cached.index_entries.check_at = check_at;
            }
            outcomes.push(outcome);
            changes.push(one);
        }
        let commit_name = self.new_commit_name();
        let new_version = cached.new_version(&changes, &before, commit_name);
        AppliedGroup { outcomes, changes, new_version, commit_name, new_nodes, is_due_earlier }
    }

    /// Returns when a session must be swept next: when time changes something in it, or early
    /// enough to extend its time to live in the database.
    pub(crate) fn check_at(&self, cached: &CachedSession, now: Time) -> Time {
        let latest = now.plus(self.settings.session_ttl / 2);
        cached.session.next_check(&self.rules).map_or(latest, |at| at.min(latest))
    }

    async fn commit(
        &self,
        id: SessionId,
        cached: &CachedSession,
        applied: &AppliedGroup,
    ) -> StoreResult<CommitVerdict> {
        for node in &applied.new_nodes {
            let is_local = self.local_nodes.borrow().contains(node);
            let presence = Presence { session: id, node: *node, version: cached.stamp.version + 1, is_local };
            self.with_retry(|| self.database.record_presence(presence)).await?;
        }
        let new_version = (!applied.new_version.is_empty()).then_some(&applied.new_version);
        let request = CommitRequest { expected: &cached.stamp, new_version };
        let index_key = IndexKey::of(cached.session.facts());
        let schedule = async {
            if applied.is_due_earlier
                && let Err(error) = self.database.schedule(&index_key, cached.index_entries.check_at).await
            {
                // The session is still in the schedule, at a later time, and is swept then.
                tracing::debug!(session = id.short(), %error, "could not schedule an earlier sweep of a session");
            }
        };
        let (committed, ()) =
            tokio::join!(self.commit_with_retry(id, &request, applied.commit_name), schedule);
        committed
    }

    /// Commits. If the outcome is unknown, this sends the same commit again until it knows.
    ///
    /// Either the repeated commit takes effect, and then the first cannot take effect any more, or
    /// the session's stamp shows whether the first did.
    pub(crate) async fn commit_with_retry(
        &self,
        id: SessionId,
        request: &CommitRequest<'_>,
        commit_name: u64,
    ) -> StoreResult<CommitVerdict> {
        let mut deadline = pin!(tokio::time::sleep(self.settings.retry_window));
        let mut in_doubt = false;
        loop {
            let error = match self.database.commit(id, request).await {
                Ok(CommitOutcome::Committed) => return Ok(CommitVerdict::Committed),
                Ok(CommitOutcome::Conflict { current, .. }) if request.new_version.is_none() => {
                    return Ok(CommitVerdict::Conflict(current));
                }
                Ok(CommitOutcome::Conflict { current, may_be_own_commit }) => {
                    let in_doubt = in_doubt || may_be_own_commit;
                    return resolve_conflict(current, request.expected.version, commit_name, in_doubt);
                }
                Err(error) => error,
            };
            in_doubt |= matches!(error, StoreError::Unknown(_)) && request.new_version.is_some();
            let is_final = matches!(error, StoreError::Corrupt(_));
            if is_final || !self.wait_before_retry(deadline.as_mut()).await {
                let text = error.to_string();
                return Err(if in_doubt && !is_final { StoreError::Unknown(text) } else { error });
            }
        }
    }

    /// Updates the copy after the commit, signals the changes to local nodes, and sends hints to
    /// others.
    async fn publish_commit(
        self: &Rc<Self>,
        id: SessionId,
        cached: &mut CachedSession,
        applied: AppliedGroup,
    ) -> Vec<Outcome> {
        let AppliedGroup { outcomes, changes, new_version, .. } = applied;
        if !new_version.is_empty() {
            cached.stamp = new_version.stamp;
        }
        let has_closed =
            changes.iter().flat_map(|one| &one.lifecycle).any(|event| matches!(event, Lifecycle::Closed(_)));
        if has_closed
            && let Err(error) = self.database.mark_closed(&IndexKey::of(cached.session.facts())).await
        {
            tracing::debug!(
                session = id.short(),
                %error,
                "could not mark a session as closed; it counts toward the limits until it is removed"
            );
        }
        self.track_local_holdings(id, cached, &changes);
        let facts = cached.session.facts();
        changes.iter().for_each(|one| self.signal_sink.publish(facts, one));
        self.send_hints(id, &cached.index_entries, &changes);
        outcomes
    }

    /// Sends hints of these changes to nodes of other processes that hold something in the session.
    fn send_hints(self: &Rc<Self>, id: SessionId, index_entries: &IndexEntries, changes: &[Changes]) {
        let local_nodes = self.local_nodes.borrow();
        let remote_nodes: Vec<NodeId> =
            index_entries.present.iter().copied().filter(|node| !local_nodes.contains(node)).collect();
        let has_update = changes.iter().any(|one| !SessionUpdate::of(id, one).is_empty());
        if has_update && !remote_nodes.is_empty() && self.settings.receives_hints {
            let gets_a_call = |node: &NodeId| {
                changes.iter().any(|one| one.forwarded.iter().any(|(_, owner)| owner == node))
            };
            let (callees, others): (Vec<_>, Vec<_>) = remote_nodes.into_iter().partition(gets_a_call);
            for (nodes, has_forwarded_call) in [(callees, true), (others, false)] {
                if !nodes.is_empty() {
                    self.spawn_hint(nodes, ChangeHint { session: id, has_forwarded_call });
                }
            }
        }
    }

    fn track_local_holdings(&self, id: SessionId, cached: &CachedSession, changes: &[Changes]) {
        let local_nodes = self.local_nodes.borrow();
        if local_nodes.is_empty() || !self.settings.receives_hints {
            return;
        }
        let mut sessions = self.sessions.borrow_mut();
        let holdings = sessions.local_holdings.entry(id).or_default();
        changes.iter().for_each(|one| holdings.track(&cached.session, one, &local_nodes));
        if holdings.is_empty() {
            sessions.local_holdings.remove(&id);
        }
    }

    /// Loads a session that is not in the cache. Returns `None` if it does not exist.
    pub(crate) async fn load(&self, id: SessionId) -> StoreResult<Option<Box<CachedSession>>> {
        let unknown = VersionStamp::default();
        match self.with_retry(|| self.database.load(id, &unknown)).await? {
            LoadOutcome::Changed(snapshot) => self.restore(id, snapshot).map(Some),
            LoadOutcome::Unchanged | LoadOutcome::Missing => {
                self.signal_external_changes(id, None);
                Ok(None)
            }
        }
    }

    /// Repeats an idempotent request until the database replies or the retry window is over.
    pub(crate) async fn with_retry<T, F: Future<Output = StoreResult<T>>>(
        &self,
        request: impl Fn() -> F,
    ) -> StoreResult<T> {
        let mut deadline = pin!(tokio::time::sleep(self.settings.retry_window));
        loop {
            match request().await {
                Err(StoreError::Unavailable(text) | StoreError::Unknown(text)) => {
                    if !self.wait_before_retry(deadline.as_mut()).await {
                        // The request is idempotent, so the caller may treat it as not done.
                        return Err(StoreError::Unavailable(text));
                    }
                }
                result => return result,
            }
        }
    }

    /// Waits for the retry interval. Returns false if the retry window is over.
    async fn wait_before_retry(&self, deadline: Pin<&mut tokio::time::Sleep>) -> bool {
        tokio::select! {
            biased;
            () = deadline => false,
            () = tokio::time::sleep(self.settings.retry_interval) => true,
        }
    }

    /// Builds a session from a snapshot and signals what other processes have changed in it.
    pub(crate) fn restore(&self, id: SessionId, snapshot: Snapshot) -> StoreResult<Box<CachedSession>> {
        let cached = Box::new(CachedSession::restore(id, snapshot)?);
        self.signal_external_changes(id, Some(&cached));
        Ok(cached)
    }

    /// Signals what other processes have changed in the holdings of local nodes, after a session
    /// was loaded. `cached` is `None` if the session does not exist any more.
    pub(crate) fn signal_external_changes(&self, id: SessionId, cached: Option<&CachedSession>) {
        if !self.settings.receives_hints {
            return;
        }
        let local_nodes = self.local_nodes.borrow();
        let now = cached
            .map(|cached| LocalHoldings::of(&cached.session, &local_nodes))
            .filter(|holdings| !holdings.is_empty());
        let mut sessions = self.sessions.borrow_mut();
        let before = match now {
            Some(holdings) => sessions.local_holdings.insert(id, holdings),
            None => sessions.local_holdings.remove(&id),
        };
        drop(sessions);
        let session = cached.map(|cached| &cached.session);
        let changes = before.unwrap_or_default().compare(session, &local_nodes);
        self.signal_sink.signal_update(changes.update(id));
    }
}

/// Finds out whether a commit that met another version has taken effect. `in_doubt` says that an
/// earlier try may have.
fn resolve_conflict(
    current: Option<Snapshot>,
    expected: u64,
    commit_name: u64,
    in_doubt: bool,
) -> StoreResult<CommitVerdict> {
    let Some(snapshot) = current else {
        return if in_doubt {
            Err(StoreError::Unknown("the session was removed before the commit could be verified".into()))
        } else {
            Ok(CommitVerdict::Conflict(None))
        };
    };
    match snapshot.stamp.contains_commit(expected, commit_name) {
        Some(true) => Ok(CommitVerdict::CommittedEarlier(snapshot)),
        None if in_doubt => {
            Err(StoreError::Unknown("too many commits have followed to verify this one".into()))
        }
        _ => Ok(CommitVerdict::Conflict(Some(snapshot))),
    }
}
