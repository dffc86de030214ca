//! Decides for a client session how many calls its server gets at a time, and applies the decision.

use std::sync::Arc;
use std::time::Duration;

use steadfast_client::Misrouting;
use steadfast_engine::{Engine, SessionHandle};
use steadfast_wire::rpc::ErrorObject;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::check::{Checked, check};
use super::record::{self, StoredVerdict, VERDICT_TTL};
use super::{SerialReason, ServerTag, Verdict};
use crate::call::concurrency::CallPermit;
use crate::placement::sync::LaneFilter;
use crate::placement::upstream_session::UpstreamSession;
use crate::replicas::replica::Replica;
use crate::session::client_session::ClientSession;

/// How long after a check that could not be completed the next parallel calls cause another one.
const RETRY_AFTER: Duration = Duration::from_secs(60);

impl ClientSession {
    /// Waits for the right to send a call. Before the first parallel calls the server is checked;
    /// they wait for the verdict.
    pub(crate) async fn acquire_permit(
        &self,
        cancelled: &CancellationToken,
    ) -> Result<CallPermit, ErrorObject> {
        if !self.shared.adapts_concurrency() {
            return self.concurrency().acquire(cancelled).await;
        }
        let verdict = self.verdict();
        match verdict {
            Some(verdict) => self.set_calls_per_lane(calls_at_a_time(Some(verdict))),
            None => self.apply_verdict(),
        }
        if let Some(permit) = self.concurrency().try_acquire() {
            return Ok(permit);
        }
        if verdict.is_none() {
            self.check_in_background();
        }
        self.concurrency().acquire(cancelled).await
    }

    /// Returns the verdict on the server of this session. `None`: it is not known yet.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.lanes[0].upstream_session()?.verdict()
    }

    /// Returns true if all calls of the session must run on one node. See
    /// [`Shared::requires_single_node`](crate::upstream::Shared::requires_single_node).
    pub(crate) fn requires_single_node(&self) -> bool {
        let shared = &self.shared;
        let is_adapted = shared.adapts_concurrency() && !shared.forwards_credentials();
        shared.requires_single_node() || is_adapted && self.verdict() != Some(Verdict::Parallel)
    }

    /// Returns how many calls an upstream session of this session gets at a time, if the gateway
    /// decides that.
    pub(crate) fn adapted_concurrency(&self) -> Option<usize> {
        self.shared.adapts_concurrency().then(|| calls_at_a_time(self.verdict()))
    }

    /// Returns true if an upstream session of this session gets one call at a time.
    pub(crate) fn gets_one_call_at_a_time(&self) -> bool {
        match self.adapted_concurrency() {
            Some(per_lane) => per_lane == 1,
            None => self.shared.config.calls.are_serial(),
        }
    }

    /// Applies the verdict to the queue of calls, and to the calls that other nodes forward.
    pub(crate) fn apply_verdict(&self) {
        let Some(per_lane) = self.adapted_concurrency() else { return };
        self.set_calls_per_lane(per_lane);
        if let Some(session) = self.session().filter(|session| session.engine().shares_store()) {
            self.expect_forwarded_calls(&session, self.lease.is_held_here());
        }
    }

    /// Finds the verdict before the first call needs it, if other nodes share the store: until it
    /// is known, they forward their calls to this node.
    pub(crate) fn find_verdict_ahead(self: &Arc<Self>, session: &SessionHandle) {
        let is_needed = self.shared.adapts_concurrency() && session.engine().shares_store();
        if is_needed && self.verdict().is_none() {
            let (client_session, session) = (Arc::clone(self), session.clone());
            Arc::clone(session.engine()).spawn(async move { client_session.find_verdict(&session).await });
        }
    }

    /// Finds the verdict of another node for a session that this node does not know yet. If there
    /// is none, starts the check.
    pub(crate) async fn find_verdict(&self, session: &SessionHandle) {
        if self.lanes[0].upstream_session().is_none() {
            self.sync_placement(session, LaneFilter::All).await;
        }
        self.read_verdicts(session.engine()).await;
        if self.verdict().is_none() {
            self.check_in_background();
        }
    }

    /// Reads the verdicts of other nodes while calls arrive. One node may have seen a wrong answer
    /// after another node found none.
    pub(crate) fn refresh_verdicts(self: &Arc<Self>, session: &SessionHandle) {
        if self.shared.adapts_concurrency() && self.shared.last_verdict_read.is_due() {
            let (client_session, engine) = (Arc::clone(self), Arc::clone(session.engine()));
            session.engine().spawn(async move { client_session.read_verdicts(&engine).await });
        }
    }

    async fn read_verdicts(&self, engine: &Engine) {
        if engine.shares_store() {
            self.shared.last_verdict_read.read(self.load_verdicts(engine)).await;
        }
    }

    async fn load_verdicts(&self, engine: &Engine) {
        match record::load(engine).await {
            Ok(all) => {
                let (now, begun) = (engine.now(), Instant::now());
                let mut is_changed = false;
                for stored in all {
                    let replica = self.shared.instances.replica(&stored.replica);
                    let (Some(replica), Some(rest)) = (replica, stored.remaining(now)) else { continue };
                    let server = ServerTag::from(stored.server.as_str());
                    is_changed |= replica.verdicts.set(&server, stored.verdict(), begun + rest).is_some();
                }
                if is_changed {
                    self.apply_to_all_sessions();
                }
            }
            Err(error) => {
                tracing::debug!(%error, "could not read which servers answer parallel calls");
            }
        }
    }

    /// Checks the server, unless a check is running.
    fn check_in_background(&self) {
        let (Some(client_session), Some(session)) = (self.this(), self.session()) else { return };
        let engine = Arc::clone(session.engine());
        session.engine().spawn(async move { client_session.check_server(&engine).await });
    }

    async fn check_server(&self, engine: &Engine) {
        // Calls report the error.
        let Ok(upstream_session) = self.upstream_session_of(0).await else { return };
        let Some(replica) = upstream_session.instance.replica() else { return };
        let Some(_guard) = replica.verdicts.begin_check() else { return };
        self.read_verdicts(engine).await;
        let Some(server) = upstream_session.server_tag().filter(|_| upstream_session.verdict().is_none())
        else {
            return;
        };
        let Checked { verdict, server: answered_by, error } = check(self, &upstream_session).await;
        if let Some(error) = error {
            tracing::debug!(replica = replica.name, %error, "could not check whether the server answers parallel calls");
        }
        for server in answered_by.filter(|other| *other != server).iter().chain([&server]) {
            store(engine, replica, server, verdict).await;
            self.decide(replica, server, verdict);
        }
    }

    /// Handles a sign that the server mixes up the answers to parallel calls. Returns false if the
    /// gateway does not decide how many calls the server gets, or if it gets one at a time already.
    pub(crate) fn serialise(&self, session_no: u64, sign: Misrouting) -> bool {
        let upstream_session = self.lanes[0].upstream_session().filter(|session| session.no == session_no);
        let (Some(upstream_session), Some(session)) = (upstream_session, self.session()) else {
            return false;
        };
        let is_adapted = self.shared.adapts_concurrency();
        if !is_adapted || matches!(upstream_session.verdict(), Some(Verdict::Serial(_))) {
            return false;
        }
        tracing::warn!(session = self.short(), %sign, "the server gave a wrong answer to a call");
        let replica = upstream_session.instance.replica().cloned();
        let (Some(replica), Some(server)) = (replica, upstream_session.server_tag()) else { return false };
        let verdict = Verdict::Serial(SerialReason::WrongAnswer);
        self.decide(&replica, &server, verdict);
        let engine = Arc::clone(session.engine());
        session.engine().spawn(async move { store(&engine, &replica, &server, verdict).await });
        true
    }

    /// Records a verdict for this node and applies it.
    fn decide(&self, replica: &Replica, server: &ServerTag, verdict: Verdict) {
        let valid_for = if is_provisional(verdict) { RETRY_AFTER } else { VERDICT_TTL };
        if let Some(verdict) = replica.verdicts.set(server, verdict, Instant::now() + valid_for) {
            log(&replica.name, server, verdict);
            self.apply_to_all_sessions();
        }
    }

    fn apply_to_all_sessions(&self) {
        if let Some(registry) = self.registry() {
            registry.all().iter().for_each(|client_session| client_session.apply_verdict());
        }
    }
}

impl UpstreamSession {
    /// Returns the verdict on the server, as far as this node knows it.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let replica = self.instance.replica()?;
        match self.server_tag() {
            // A server without session ids has no session that parallel calls could overwrite.
            None => Some(Verdict::Parallel),
            Some(server) => replica.verdicts.get(&server),
        }
    }
}

/// Returns how many calls an upstream session gets at a time.
fn calls_at_a_time(verdict: Option<Verdict>) -> usize {
    match verdict {
        Some(Verdict::Parallel) => usize::MAX,
        Some(Verdict::Serial(_)) | None => 1,
    }
}

/// Returns true if the verdict is not a result of a check, and not for other nodes.
fn is_provisional(verdict: Verdict) -> bool {
    verdict == Verdict::Serial(SerialReason::CheckFailed)
}

/// Stores a verdict for all nodes and for the next process.
async fn store(engine: &Engine, replica: &Replica, server: &ServerTag, verdict: Verdict) {
    if is_provisional(verdict) || !engine.shares_store() {
        return;
    }
    let stored = StoredVerdict::new(&replica.name, server, verdict, engine.now());
    if let Err(error) = record::add(engine, &stored).await {
        tracing::warn!(replica = replica.name, %error, "could not store for other nodes whether the server answers parallel calls");
    }
}

fn log(replica: &str, server: &ServerTag, verdict: Verdict) {
    let server = server.as_str();
    match verdict {
        Verdict::Parallel => {
            tracing::info!(replica, server, "the server answers parallel calls of one session; it gets them");
        }
        Verdict::Serial(reason) => tracing::warn!(
            replica,
            server,
            reason = reason.as_str(),
            "the server gets one call of a session at a time, because {}; \
             set `concurrency = \"unlimited\"` or a number to decide this yourself",
            match reason {
                SerialReason::Check => "it loses or mixes up the answers to parallel calls",
                SerialReason::CheckFailed =>
                    "the gateway could not check whether it answers parallel calls; the check is repeated later",
                SerialReason::Fingerprint => "it is php-sdk, which loses the answers to parallel calls",
                SerialReason::WrongAnswer => "it gave a wrong answer to a call, or none",
            }
        ),
    }
}
