//! What is asked of one session beside commands.

use std::rc::Rc;
use std::sync::Arc;

use steadfast_session::command::{Sweep, Swept};
use steadfast_session::{
    Changes, Command, Facts, Holdings, Lifecycle, NodeId, Outcome, Read, SessionId, StreamNo, Time,
};

use super::backing::{
    Admission, Admit, Answer, Backing, EventKey, Listed, Loaded, Payloads, Presence, Stamp, Write,
};
use super::commands::Verdict;
use super::job::Work;
use super::slot::{Slot, Standing};
use super::worker::Worker;
use crate::error::StoreError;
use crate::store::Opened;

/// How often a read starts again because the session has changed meanwhile.
const TRIES: usize = 64;

impl<B: Backing> Worker<B> {
    pub(crate) async fn run_other(self: Rc<Self>, id: SessionId, work: Work) {
        // Whoever does not wait any more does not want to know.
        match work {
            Work::Open { facts, to } => drop(to.send(self.open(facts).await)),
            Work::Command(_) => {}
            Work::Read { stream, after, budget, to } => {
                drop(to.send(self.read(id, stream, after, budget).await));
            }
            Work::Facts { to } => drop(to.send(self.facts(id).await)),
            Work::Held { node, to } => drop(to.send(self.held(id, node).await)),
            Work::Look => {
                if let Err(error) = self.current(id, |_| ()).await {
                    tracing::debug!(session = id.short(), %error, "news cannot be looked at");
                }
            }
            Work::Remove { listed, now, to } => drop(to.send(self.remove(&listed, now).await)),
        }
    }

    async fn open(&self, facts: Facts) -> Answer<Opened> {
        let facts = Arc::new(facts);
        // Whoever opens a session will hold something of it.
        let present = self.own.borrow().clone();
        let mut slot = Slot::open(Arc::clone(&facts), Standing { check_at: Time(0), present });
        slot.standing.check_at = self.check_at(&slot, facts.opened_at);
        let admission = self.admit(&slot).await?;
        if let Admission::OverLimit(limit) = admission {
            let is_taken = self.current(facts.id, |_| ()).await?.is_some();
            return Ok(if is_taken { Opened::Taken } else { Opened::OverLimit(limit) });
        }
        let attempt = self.attempt();
        let next = slot.first(attempt);
        match self.commit_surely(facts.id, &Write { seen: &slot.stamp, next: Some(&next) }, attempt).await? {
            Verdict::Done | Verdict::DoneBefore(_) => {}
            Verdict::Beaten(_) => {
                if admission == Admission::Admitted {
                    // Somebody else's session has this id, and is counted as theirs.
                    self.backing.forget(&Listed::of(&facts), &[]).await?;
                }
                return Ok(Opened::Taken);
            }
        }
        slot.stamp = next.stamp;
        self.keep(facts.id, Box::new(slot));
        let changes = Changes { lifecycle: vec![Lifecycle::Opened], ..Changes::default() };
        self.outlet.publish(&facts, &changes);
        Ok(Opened::Opened(facts))
    }

    async fn admit(&self, slot: &Slot) -> Answer<Admission> {
        let facts = slot.session.facts();
        let limits = &self.rules.limits;
        let admit = Admit {
            listed: &Listed::of(facts),
            due: slot.standing.check_at,
            sessions: limits.sessions,
            sessions_per_principal: limits.sessions_per_principal,
        };
        let present = async {
            for node in &slot.standing.present {
                let presence = Presence { session: facts.id, node: *node, version: 1, own: true };
                self.patiently(|| self.backing.present(presence)).await?;
            }
            Ok(())
        };
        // Said twice, either changes nothing.
        let (admission, present) = tokio::join!(self.patiently(|| self.backing.admit(&admit)), present);
        present.and(admission)
    }

    /// A session as it is now.
    async fn current<T>(&self, id: SessionId, look: impl FnOnce(&Slot) -> T) -> Answer<Option<T>> {
        let cached = self.take(&id);
        let seen = cached.as_ref().map_or_else(Stamp::default, |slot| slot.stamp.clone());
        let loaded = self.patiently(|| self.backing.load(id, &seen)).await;
        let slot = match (loaded, cached) {
            (Ok(Loaded::Newer(snapshot)), _) => self.restore(id, snapshot)?,
            (Ok(Loaded::Same), Some(cached)) => cached,
            (Ok(Loaded::Missing | Loaded::Same), _) => {
                self.notice(id, None);
                return Ok(None);
            }
            (Err(error), cached) => {
                // It was right when it was put there, and each use finds out whether it still is.
                cached.into_iter().for_each(|slot| self.keep(id, slot));
                return Err(error);
            }
        };
        let seen = look(&slot);
        self.keep(id, slot);
        Ok(Some(seen))
    }

    async fn facts(&self, id: SessionId) -> Answer<Option<Arc<Facts>>> {
        let facts = |slot: &Slot| slot.session.is_open().then(|| Arc::clone(slot.session.facts()));
        self.current(id, facts).await.map(Option::flatten)
    }

    async fn held(&self, id: SessionId, node: NodeId) -> Answer<Holdings> {
        let held = self.current(id, |slot| slot.session.held_by(node)).await?;
        Ok(held.unwrap_or(Holdings::NoSession))
    }

    /// What to read is chosen by what is known of the session, and read only if that is still so.
    async fn read(&self, id: SessionId, stream: StreamNo, after: u64, budget: u64) -> Answer<Read> {
        let mut slot = match self.take(&id) {
            Some(slot) => slot,
            None => match self.load(id).await? {
                Some(slot) => slot,
                None => return Ok(Read::NoSession),
            },
        };
        for _ in 0..TRIES {
            let mut read = slot.session.read(stream, after, budget);
            let events = events_of(stream, &read);
            match self.patiently(|| self.backing.payloads(id, &slot.stamp, &events)).await {
                Ok(Payloads::Read(payloads)) => {
                    self.keep(id, slot);
                    fill(&mut read, payloads)?;
                    return Ok(read);
                }
                Ok(Payloads::Newer(snapshot)) => slot = self.restore(id, snapshot)?,
                Ok(Payloads::Missing) => {
                    self.notice(id, None);
                    return Ok(Read::NoSession);
                }
                Err(error) => {
                    self.keep(id, slot);
                    return Err(error);
                }
            }
        }
        self.keep(id, slot);
        Err(StoreError::Unavailable("other processes change this session without a pause".into()))
    }

    /// Removes the rows of a session whose time is over, and its place in the lists.
    async fn remove(&self, listed: &Listed, now: Time) -> Answer<()> {
        let over = |slot: &Slot| {
            let mut session = slot.session.clone();
            let swept = session.apply(Command::Sweep(Sweep), now, &self.rules, &mut Changes::default());
            let is_over = swept == Outcome::Sweep(Swept::Remove);
            is_over.then(|| (slot.stamp.clone(), slot.standing.present.clone()))
        };
        let id = listed.session;
        match self.current(id, over).await? {
            None => self.backing.forget(listed, &[]).await,
            Some(Some((seen, present))) => {
                // If somebody was faster, the next sweep finds out what is left to do.
                if self.backing.remove(id, &seen).await? {
                    drop(self.take(&id));
                    self.backing.forget(listed, &present).await?;
                }
                Ok(())
            }
            Some(None) => Ok(()),
        }
    }
}

/// The events of a slice whose payloads are in the database.
fn events_of(stream: StreamNo, read: &Read) -> Vec<EventKey> {
    let Read::Slice(slice) = read else { return Vec::new() };
    let absent = slice.entries.iter().filter(|entry| entry.payload.is_none());
    absent.map(|entry| EventKey { stream, seq: entry.seq, class: entry.class, size: entry.size }).collect()
}

fn fill(read: &mut Read, payloads: Vec<Option<bytes::Bytes>>) -> Answer<()> {
    let Read::Slice(slice) = read else { return Ok(()) };
    let absent = slice.entries.iter_mut().filter(|entry| entry.payload.is_none());
    for (entry, payload) in absent.zip(payloads) {
        entry.payload =
            Some(payload.ok_or_else(|| StoreError::Corrupt("an event without its payload".into()))?);
    }
    Ok(())
}
