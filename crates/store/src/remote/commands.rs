//! Commands on one session: applied here, committed there if nobody was faster.

use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use steadfast_session::command::{FailNode, Sweep};
use steadfast_session::{Changes, Command, Lifecycle, NodeId, Outcome, SessionId, Time};
use steadfast_wire::planted;

use super::backing::{
    Answer, Backing, Committed, Listed, Loaded, Next, Presence, Snapshot, Stamp, Told, Write,
};
use super::job::{Done, Order};
use super::slot::{Slot, Standing, holds, leaves_something};
use super::watch::Watch;
use super::worker::Worker;
use crate::error::StoreError;
use crate::store::{holders, newly_mailed_to, no_session, not_there};

/// How often a command is applied anew because another process was faster. Each time somebody got on.
const TRIES: u32 = 64;

/// After that many it waits a little, by chance, so that two do not meet again and again.
const EAGER_TRIES: u32 = 3;

/// What a group of commands did to a session.
struct Applied {
    outcomes: Vec<Outcome>,
    changes: Vec<Changes>,
    next: Next,
    attempt: u64,
    /// Nodes that hold something from now on.
    newcomers: Vec<NodeId>,
    /// The session has to be looked at earlier than was agreed.
    earlier: bool,
}

impl<B: Backing> Worker<B> {
    pub(crate) async fn run_commands(self: Rc<Self>, id: SessionId, orders: Vec<Order>) {
        match self.try_commands(id, &orders).await {
            Ok(Some((applied, version, check_at))) => {
                for (order, outcome) in orders.into_iter().zip(applied) {
                    order.to.send(Ok(Done { outcome, version: Some(version), check_at }));
                }
            }
            Ok(None) => {
                for order in orders {
                    let outcome = no_session(&order.command);
                    order.to.send(Ok(Done { outcome, version: None, check_at: Time(0) }));
                }
            }
            Err(error) => orders.into_iter().for_each(|order| order.to.send(Err(error.clone()))),
        }
    }

    /// The outcomes and the version that they were committed in. `None` if there is no such session.
    async fn try_commands(
        self: &Rc<Self>,
        id: SessionId,
        orders: &[Order],
    ) -> Answer<Option<(Vec<Outcome>, u64, Time)>> {
        let mut slot = match self.take(&id) {
            Some(slot) => slot,
            None => match self.load(id).await? {
                Some(slot) => slot,
                None => return Ok(None),
            },
        };
        for tries in 0..TRIES {
            // Whatever happens from here on, the slot is out of the cache until it is known to be right.
            let gone = self.gone(id, &slot, orders).await?;
            let applied = self.apply(&mut slot, orders, &gone);
            if planted("deliver-before-commit") {
                applied.changes.iter().for_each(|one| self.outlet.publish(slot.session.facts(), one));
            }
            match self.commit(id, &slot, &applied).await? {
                Verdict::Done => {
                    let outcomes = self.finish(id, &mut slot, applied).await;
                    let (version, check_at) = (slot.stamp.version, slot.standing.check_at);
                    self.keep(id, slot);
                    return Ok(Some((outcomes, version, check_at)));
                }
                Verdict::DoneBefore(snapshot) => {
                    let version = slot.stamp.version + 1;
                    let outcomes = self.finish(id, &mut slot, applied).await;
                    let check_at = slot.standing.check_at;
                    let newer = self.restore(id, snapshot)?;
                    self.keep(id, newer);
                    return Ok(Some((outcomes, version, check_at)));
                }
                Verdict::Beaten(Some(snapshot)) => slot = self.restore(id, snapshot)?,
                Verdict::Beaten(None) => {
                    self.notice(id, None);
                    return Ok(None);
                }
            }
            if tries >= EAGER_TRIES {
                tokio::time::sleep(Duration::from_millis(self.attempt() % (1 + u64::from(tries.min(16)))))
                    .await;
            }
        }
        self.keep(id, slot);
        Err(StoreError::Unavailable("other processes change this session without a pause".into()))
    }

    /// Those who are to get calls that came elsewhere, and are not there. Whoever the session names is on the list of nodes,
    /// and will be buried if it is dead. Others are asked for once they are named beside the session: then they cannot go
    /// without what they are about to get.
    async fn gone(&self, id: SessionId, slot: &Slot, orders: &[Order]) -> Answer<Vec<NodeId>> {
        let mut gone = Vec::new();
        for owner in orders.iter().filter_map(|order| newly_mailed_to(&order.command, &slot.session)) {
            let own = self.own.borrow().contains(&owner);
            if own || gone.contains(&owner) || slot.standing.present.contains(&owner) {
                continue;
            }
            let presence = Presence { session: id, node: owner, version: slot.stamp.version + 1, own };
            self.patiently(|| self.backing.present(presence)).await?;
            if !self.patiently(|| self.backing.is_alive(owner)).await? {
                gone.push(owner);
            }
        }
        Ok(gone)
    }

    /// The command as it is applied: whoever buries a node finds out who inherits.
    fn resolved(&self, slot: &Slot, order: &Order) -> Command {
        match &order.command {
            Command::FailNode(FailNode { node, .. }) if order.buries => {
                let heir = self.outlet.heir(slot.session.facts());
                Command::FailNode(FailNode { node: *node, heir })
            }
            command => command.clone(),
        }
    }

    fn apply(&self, slot: &mut Slot, orders: &[Order], gone: &[NodeId]) -> Applied {
        let before = (slot.session.held_bytes(), slot.standing.clone());
        let (mut outcomes, mut changes, mut newcomers) = (Vec::new(), Vec::new(), Vec::new());
        let mut earlier = false;
        for order in orders {
            let mut one = Changes::default();
            let command = self.resolved(slot, order);
            let nodes = holders(&command);
            let sweeps = matches!(command, Command::Sweep(Sweep));
            let mailed_to = newly_mailed_to(&command, &slot.session);
            let outcome = if mailed_to.is_some_and(|owner| gone.contains(&owner)) {
                not_there(&command)
            } else {
                slot.session.apply(command, order.now, &self.rules, &mut one)
            };
            let present = &mut slot.standing.present;
            for node in nodes.into_iter().flatten() {
                if holds(&outcome) && !present.contains(&node) {
                    present.push(node);
                    newcomers.push(node);
                }
            }
            if let Some(node) = order.strikes.filter(|_| !leaves_something(&outcome)) {
                present.retain(|present| *present != node);
                newcomers.retain(|newcomer| *newcomer != node);
            }
            let check_at = self.check_at(slot, order.now);
            // Earlier than agreed: look earlier. Later than agreed: the sweep will see, so that a busy session does not
            // move on the agenda with each request.
            if sweeps || check_at < slot.standing.check_at {
                earlier |= check_at < slot.standing.check_at;
                slot.standing.check_at = check_at;
            }
            outcomes.push(outcome);
            changes.push(one);
        }
        let attempt = self.attempt();
        let next = slot.collect(&changes, &before, attempt);
        Applied { outcomes, changes, next, attempt, newcomers, earlier }
    }

    /// When to look at a session again: when time changes something, or to show the database that it is still wanted.
    pub(crate) fn check_at(&self, slot: &Slot, now: Time) -> Time {
        let latest = now.plus(self.settings.keep / 2);
        slot.session.next_check(&self.rules).map_or(latest, |at| at.min(latest))
    }

    async fn commit(&self, id: SessionId, slot: &Slot, applied: &Applied) -> Answer<Verdict> {
        for node in &applied.newcomers {
            let own = self.own.borrow().contains(node);
            let presence = Presence { session: id, node: *node, version: slot.stamp.version + 1, own };
            self.patiently(|| self.backing.present(presence)).await?;
        }
        let next = (!applied.next.is_empty()).then_some(&applied.next);
        let write = Write { seen: &slot.stamp, next };
        let listed = Listed::of(slot.session.facts());
        let schedule = async {
            if applied.earlier
                && let Err(error) = self.backing.schedule(&listed, slot.standing.check_at).await
            {
                // It stands on the agenda, later. That is when it will be looked at.
                tracing::debug!(session = id.short(), %error, "a session is looked at later than it should be");
            }
        };
        let (committed, ()) = tokio::join!(self.commit_surely(id, &write, applied.attempt), schedule);
        committed
    }

    /// Commits. If nobody knows whether it happened, the same commit is sent again: either it happens now, and then the
    /// first cannot happen any more, or the session tells.
    pub(crate) async fn commit_surely(
        &self,
        id: SessionId,
        write: &Write<'_>,
        attempt: u64,
    ) -> Answer<Verdict> {
        let mut over = pin!(tokio::time::sleep(self.settings.patience));
        let mut in_doubt = false;
        loop {
            let error = match self.backing.commit(id, write).await {
                Ok(Committed::Done) => return Ok(Verdict::Done),
                Ok(Committed::Beaten { session, .. }) if write.next.is_none() => {
                    return Ok(Verdict::Beaten(session));
                }
                Ok(Committed::Beaten { session, perhaps_by_itself }) => {
                    return judge(session, write.seen.version, attempt, in_doubt || perhaps_by_itself);
                }
                Err(error) => error,
            };
            in_doubt |= matches!(error, StoreError::Unknown(_)) && write.next.is_some();
            let is_final = matches!(error, StoreError::Corrupt(_));
            if is_final || !self.pause_until(over.as_mut()).await {
                let text = error.to_string();
                return Err(if in_doubt && !is_final { StoreError::Unknown(text) } else { error });
            }
        }
    }

    /// The commit has happened: lets everybody know.
    async fn finish(self: &Rc<Self>, id: SessionId, slot: &mut Slot, applied: Applied) -> Vec<Outcome> {
        let Applied { outcomes, changes, next, .. } = applied;
        if !next.is_empty() {
            slot.stamp = next.stamp;
        }
        let has_closed =
            changes.iter().flat_map(|one| &one.lifecycle).any(|event| matches!(event, Lifecycle::Closed(_)));
        if has_closed && let Err(error) = self.backing.release(&Listed::of(slot.session.facts())).await {
            // Counted until it is removed.
            tracing::debug!(session = id.short(), %error, "a closed session counts for a while");
        }
        self.follow(id, slot, &changes);
        let facts = slot.session.facts();
        changes.iter().for_each(|one| self.outlet.publish(facts, one));
        self.tell_others(id, &slot.standing, &changes);
        outcomes
    }

    fn tell_others(self: &Rc<Self>, id: SessionId, standing: &Standing, changes: &[Changes]) {
        let own = self.own.borrow();
        let others: Vec<NodeId> =
            standing.present.iter().copied().filter(|node| !own.contains(node)).collect();
        let is_news = changes.iter().any(|one| !crate::signal::News::of(id, one).is_empty());
        if is_news && !others.is_empty() && self.settings.hears_others {
            let for_errands =
                |node: &NodeId| changes.iter().any(|one| one.errands.iter().any(|(_, owner)| owner == node));
            let (busy, others): (Vec<_>, Vec<_>) = others.into_iter().partition(for_errands);
            for (nodes, errand) in [(busy, true), (others, false)] {
                if !nodes.is_empty() {
                    self.tell_later(nodes, Told { session: id, errand });
                }
            }
        }
    }

    /// Keeps in mind what this process holds of a session.
    fn follow(&self, id: SessionId, slot: &Slot, changes: &[Changes]) {
        let own = self.own.borrow();
        if own.is_empty() || !self.settings.hears_others {
            return;
        }
        let mut sessions = self.sessions.borrow_mut();
        let watch = sessions.watches.entry(id).or_default();
        changes.iter().for_each(|one| watch.follow(&slot.session, one, &own));
        if watch.is_empty() {
            sessions.watches.remove(&id);
        }
    }

    /// Loads a session of which nothing is known here.
    pub(crate) async fn load(&self, id: SessionId) -> Answer<Option<Box<Slot>>> {
        let nothing = Stamp::default();
        match self.patiently(|| self.backing.load(id, &nothing)).await? {
            Loaded::Newer(snapshot) => self.restore(id, snapshot).map(Some),
            Loaded::Same | Loaded::Missing => {
                self.notice(id, None);
                Ok(None)
            }
        }
    }

    /// Repeats what changes nothing until it has an answer, within bounds.
    pub(crate) async fn patiently<T, F: Future<Output = Answer<T>>>(&self, ask: impl Fn() -> F) -> Answer<T> {
        let mut over = pin!(tokio::time::sleep(self.settings.patience));
        loop {
            match ask().await {
                Err(StoreError::Unavailable(text) | StoreError::Unknown(text)) => {
                    if !self.pause_until(over.as_mut()).await {
                        // What changes nothing has not happened.
                        return Err(StoreError::Unavailable(text));
                    }
                }
                answer => return answer,
            }
        }
    }

    /// Waits a little. `false` if there is no time left.
    async fn pause_until(&self, over: Pin<&mut tokio::time::Sleep>) -> bool {
        tokio::select! {
            biased;
            () = over => false,
            () = tokio::time::sleep(self.settings.pause) => true,
        }
    }

    pub(crate) fn restore(&self, id: SessionId, snapshot: Snapshot) -> Answer<Box<Slot>> {
        let slot = Box::new(Slot::restore(id, snapshot)?);
        self.notice(id, Some(&slot));
        Ok(slot)
    }

    /// A session has been read anew: whatever has happened to what this process holds of it is told.
    pub(crate) fn notice(&self, id: SessionId, slot: Option<&Slot>) {
        if !self.settings.hears_others {
            return;
        }
        let own = self.own.borrow();
        let now = slot.map(|slot| Watch::of(&slot.session, &own)).filter(|watch| !watch.is_empty());
        let mut sessions = self.sessions.borrow_mut();
        let before = match now {
            Some(watch) => sessions.watches.insert(id, watch),
            None => sessions.watches.remove(&id),
        };
        drop(sessions);
        let difference = before.unwrap_or_default().difference(slot.map(|slot| &slot.session), &own);
        self.outlet.publish_found(difference.news(id));
    }
}

/// A commit was refused because the session has another version. Perhaps it made that one, or one before it.
fn judge(session: Option<Snapshot>, seen: u64, attempt: u64, in_doubt: bool) -> Answer<Verdict> {
    let Some(snapshot) = session else {
        return if in_doubt {
            Err(StoreError::Unknown("the session is gone by now".into()))
        } else {
            Ok(Verdict::Beaten(None))
        };
    };
    match snapshot.stamp.tells_of(seen, attempt) {
        Some(true) => Ok(Verdict::DoneBefore(snapshot)),
        None if in_doubt => Err(StoreError::Unknown("too much has happened since to tell".into())),
        _ => Ok(Verdict::Beaten(Some(snapshot))),
    }
}

pub(crate) enum Verdict {
    Done,
    /// It had happened, and more has since.
    DoneBefore(Snapshot),
    Beaten(Option<Snapshot>),
}
