//! Evicts sessions when the store reaches a limit on sessions or bytes.
//!
//! A principal that reached its own limit loses one of its own sessions. If the store as a whole is
//! full, the choice is:
//!
//! 1. A session that never made a call, of the principal that has the most of these. The sessions
//!    of another principal are taken only if it has more than its fair share (all sessions divided
//!    by the number of principals). So a flood of `initialize` evicts its own sessions.
//! 2. A session of the principal that has the most sessions, counting the one that is about to
//!    open: first one that never made a call, then the least recently used one.
//!
//! The choice is made from a random sample, which has all sessions of a small store. A session with
//! a call, a connection, a server request or an answer that its client has not received is never
//! evicted, and neither is a session that was used after the sample was taken: the store checks
//! that in the same atomic step.

use std::collections::BTreeMap;

use steadfast_session::command::{Evict, Evicted};
use steadfast_session::{Facts, Limit, Principal, SessionId};
use steadfast_store::{EvictionSample, Opened, SampledSession, StoreError, StoreExt};

use crate::engine::Engine;

/// How many sessions are evicted for one request, if one after the other does not make room. Nodes
/// that evict at the same time may take each other's room.
const MAX_EVICTIONS: usize = 16;

/// How many sessions of a sample are tried. Those that turn out to be in use are skipped.
const MAX_TRIES: usize = 16;

impl Engine {
    /// Opens a session in the store. Evicts others if a limit is reached.
    pub(crate) async fn open_in_store(&self, facts: Facts) -> Result<Opened, StoreError> {
        for _ in 0..MAX_EVICTIONS {
            match self.store().open(facts.clone()).await? {
                Opened::OverLimit(limit) if self.evict_one(&facts.principal, limit, None).await => {}
                opened => return Ok(opened),
            }
        }
        self.store().open(facts).await
    }

    /// Returns the limit that refuses another session of this principal, after trying to evict
    /// others.
    pub(crate) async fn reached_limit(&self, principal: &Principal) -> Result<Option<Limit>, StoreError> {
        for _ in 0..MAX_EVICTIONS {
            match self.store().reached_limit(principal).await? {
                Some(limit) if self.evict_one(principal, limit, None).await => {}
                limit => return Ok(limit),
            }
        }
        self.store().reached_limit(principal).await
    }

    /// Runs a command of a session, and runs it again after an eviction while `over_limit` returns
    /// a limit on the bytes of several sessions.
    pub(crate) async fn with_eviction<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        facts: &Facts,
        run: impl Fn() -> F,
        over_limit: impl Fn(&T) -> Option<Limit>,
    ) -> Result<T, StoreError> {
        for _ in 0..MAX_EVICTIONS {
            let outcome = run().await?;
            match over_limit(&outcome) {
                Some(limit @ (Limit::StoreBytes | Limit::PrincipalBytes))
                    if self.evict_one(&facts.principal, limit, Some(facts.id)).await => {}
                _ => return Ok(outcome),
            }
        }
        run().await
    }

    /// Evicts one session, but not `kept`. Returns false if there is none to evict, or if the store
    /// fails: the caller then refuses its request because of the limit.
    async fn evict_one(&self, requester: &Principal, limit: Limit, kept: Option<SessionId>) -> bool {
        self.try_evict_one(requester, limit, kept).await.unwrap_or_else(|error| {
            tracing::warn!(%error, %limit, "could not evict a session");
            false
        })
    }

    async fn try_evict_one(
        &self,
        requester: &Principal,
        limit: Limit,
        kept: Option<SessionId>,
    ) -> Result<bool, StoreError> {
        let of_requester = match limit {
            Limit::Sessions | Limit::StoreBytes => None,
            Limit::SessionsPerPrincipal | Limit::PrincipalBytes => Some(requester),
            _ => return Ok(false),
        };
        let sample = self.eviction_sample(requester, of_requester).await?;
        if of_requester.is_some() {
            return self.evict_first(sample.sessions, kept).await;
        }
        let unused = unused_of_one_principal(&sample, requester);
        if self.evict_first(unused, kept).await? {
            return Ok(true);
        }
        let victim = principal_with_most(&sample, requester);
        let sample = self.eviction_sample(requester, Some(&victim)).await?;
        self.evict_first(sample.sessions, kept).await
    }

    async fn eviction_sample(
        &self,
        requester: &Principal,
        of: Option<&Principal>,
    ) -> Result<EvictionSample, StoreError> {
        let from = self.entropy().session_token().id();
        self.store().eviction_sample(requester, of, from).await
    }

    /// Evicts the first of these sessions that is not in use. Returns false if all are.
    async fn evict_first(
        &self,
        mut sessions: Vec<SampledSession>,
        kept: Option<SessionId>,
    ) -> Result<bool, StoreError> {
        sessions.sort_by_key(|session| session.last_use.eviction_order());
        let others = sessions.into_iter().filter(|session| Some(session.id) != kept);
        for SampledSession { id, last_use, .. } in others.take(MAX_TRIES) {
            let evicted = self.store().run(id, Evict { seen: last_use }, self.now()).await?;
            // `NoSession`: it has ended meanwhile, which also makes room.
            if matches!(evicted, Evicted::Evicted | Evicted::NoSession) {
                tracing::debug!(session = %id.short(), "evicted a session to make room for another one");
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns the sampled sessions without a call of the principal that has the most of these, if they
/// may be evicted for the requester.
fn unused_of_one_principal(sample: &EvictionSample, requester: &Principal) -> Vec<SampledSession> {
    let mut unused: BTreeMap<&Principal, Vec<&SampledSession>> = BTreeMap::new();
    for session in sample.sessions.iter().filter(|session| session.last_use.calls == 0) {
        unused.entry(&session.principal).or_default().push(session);
    }
    let fair_share = sample.open / sample.principals.max(1);
    let most = unused.into_iter().max_by_key(|(principal, held)| (held.len(), *principal == requester));
    let may_lose = |(principal, held): &(&Principal, Vec<&SampledSession>)| {
        *principal == requester || held.iter().all(|session| session.held_by_principal > fair_share)
    };
    most.filter(may_lose).map_or_else(Vec::new, |(_, held)| held.into_iter().cloned().collect())
}

/// Returns the principal that has the most sessions, counting the one that the requester opens.
fn principal_with_most(sample: &EvictionSample, requester: &Principal) -> Principal {
    match &sample.largest {
        Some((largest, held)) if *held > sample.own + 1 => largest.clone(),
        _ => requester.clone(),
    }
}

#[cfg(test)]
mod tests {
    use steadfast_session::{LastUse, Time};

    use super::*;

    /// Returns a sample of a store in which each principal has this many sessions, of which so many
    /// made no call.
    fn sample(principals: &[(&str, u64, u64)], requester: &str) -> EvictionSample {
        let held = |name: &str| principals.iter().find(|row| row.0 == name).map_or(0, |row| row.1);
        let mut sessions = Vec::new();
        for (name, all, unused) in principals {
            sessions.extend((0..*all).map(|n| SampledSession {
                id: SessionId::derived(name, &[&n.to_be_bytes()]),
                principal: Principal::new(*name),
                last_use: LastUse { calls: u64::from(n >= *unused), at: Time(n) },
                held_by_principal: *all,
            }));
        }
        let largest = principals.iter().max_by_key(|row| row.1);
        EvictionSample {
            open: sessions.len() as u64,
            sessions,
            principals: principals.len() as u64,
            own: held(requester),
            largest: largest.map(|row| (Principal::new(row.0), row.1)),
        }
    }

    /// Which principal loses a session: one without a call, or any.
    #[derive(Debug, PartialEq)]
    enum Loses {
        Unused(&'static str),
        Any(&'static str),
    }

    #[test]
    fn the_choice_of_the_principal() {
        use Loses::{Any, Unused};
        type Row<'a> = (&'a str, &'a [(&'static str, u64, u64)], Loses);
        let rows: [Row<'_>; 9] = [
            ("a flood pays for itself", &[("flood", 5, 5), ("b", 5, 0)], Unused("flood")),
            ("also if another one has more", &[("flood", 2, 2), ("b", 8, 1)], Unused("flood")),
            ("on a tie the requester pays", &[("flood", 2, 2), ("b", 8, 2)], Unused("flood")),
            ("a newcomer takes from the most unused", &[("b", 8, 3), ("c", 2, 0)], Unused("b")),
            ("but not below a fair share", &[("b", 2, 2), ("c", 8, 0)], Any("c")),
            ("without unused ones the largest pays", &[("b", 6, 0), ("c", 4, 0)], Any("b")),
            ("the new session counts", &[("flood", 5, 0), ("b", 5, 0)], Any("flood")),
            ("a larger one still pays for it", &[("flood", 4, 0), ("b", 6, 0)], Any("b")),
            ("a principal that is alone pays", &[("flood", 9, 0)], Any("flood")),
        ];
        for (name, principals, expected) in rows {
            let requester = Principal::new("flood");
            let sample = sample(principals, "flood");
            let unused = unused_of_one_principal(&sample, &requester);
            let got = match unused.first() {
                Some(session) => (true, session.principal.clone()),
                None => (false, principal_with_most(&sample, &requester)),
            };
            let expected = match expected {
                Unused(of) => (true, Principal::new(of)),
                Any(of) => (false, Principal::new(of)),
            };
            assert_eq!(got, expected, "{name}");
        }
    }
}
