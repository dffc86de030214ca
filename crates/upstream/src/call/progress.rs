//! The progress of a call, and heartbeats while the server is silent. Some clients give up a call
//! if they hear no progress for 60 seconds (TypeScript SDK) or for five minutes.
//!
//! A heartbeat is a progress notification of the gateway: the last value plus a tiny step. Values
//! must increase, so a value of the server that is not above the last heartbeat is raised.
//!
//! Heartbeats are not stored. Only if no client reads the stream at this node, but may read it at
//! another one, they go through the store like the server's own progress.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use steadfast_engine::{CallHandle, Heartbeat, Time};
use steadfast_wire::RawObject;

use crate::session::client_session::ClientSession;
use crate::session::server_messages;

/// The step between two values: this part of the value, and at least this much.
const RELATIVE_STEP: f64 = 1e-9;
const MIN_STEP: f64 = 1e-6;

/// The progress of one call, whose client asked for progress.
pub(crate) struct CallProgress {
    client_session: Arc<ClientSession>,
    call: CallHandle,
    /// The client's progress token, as JSON text.
    token: String,
    interval: Duration,
    state: Mutex<State>,
}

struct State {
    values: Values,
    /// When the last progress was sent.
    sent_at: Time,
}

impl CallProgress {
    /// Sends heartbeats until the value is dropped, unless they are switched off.
    pub(crate) fn start(client_session: &Arc<ClientSession>, call: &CallHandle, token: String) -> Arc<Self> {
        let session = call.session();
        let engine = session.engine();
        let interval = engine.options().heartbeat;
        let state = Mutex::new(State { values: Values::default(), sent_at: engine.now() });
        let (client_session, call) = (Arc::clone(client_session), call.clone());
        let progress = Arc::new(Self { client_session, call, token, interval, state });
        if !interval.is_zero() {
            let heartbeat: Weak<dyn Heartbeat> = Arc::<Self>::downgrade(&progress);
            engine.register_heartbeat(heartbeat);
        }
        progress
    }

    /// Converts the parameters of the server's progress for the client: its own token, and a value
    /// that is above the last one.
    pub(crate) fn convert(&self, params: &mut RawObject) -> Option<()> {
        params.set("progressToken", &self.token);
        let now = self.call.session().engine().now();
        let mut state = self.state();
        state.sent_at = now;
        let value = params.get("progress").and_then(|value| value.parse().ok());
        if let Some(raised) = value.and_then(|value| state.values.pass(value)) {
            params.set("progress", &raised.to_string());
        }
        Some(())
    }

    /// Returns the value of the next heartbeat, if it is time for one.
    fn next_value(&self, now: Time) -> Option<f64> {
        let mut state = self.state();
        let is_due = now >= state.sent_at.plus(self.interval)
            && !self.call.cancelled().is_cancelled()
            && self.client_session.server_shows_life();
        let value = if is_due { state.values.step() } else { None };
        if value.is_some() {
            state.sent_at = now;
        }
        value
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heartbeat for CallProgress {
    fn tick(&self, now: Time) {
        let Some(value) = self.next_value(now) else { return };
        let members = [("progressToken", self.token.clone()), ("progress", value.to_string())];
        let members = members.map(|(name, json)| (name.to_owned(), json)).to_vec();
        let (class, payload) = server_messages::progress(&RawObject::from_members(members));
        let session = self.call.session();
        let engine = session.engine();
        if !self.call.notify_reader(payload.clone()) && engine.shares_store() {
            let sent = self.call.notify(class, payload);
            engine.spawn(async move {
                if let Err(refusal) = sent.await {
                    tracing::debug!(%refusal, "could not store a heartbeat for a client at another node");
                }
            });
        }
        self.client_session.shared.count_heartbeat();
    }
}

impl ClientSession {
    /// Returns false if every replica that serves this session was silent and failed a probe, or
    /// could not be reached. A child process that ends ends its calls.
    fn server_shows_life(&self) -> bool {
        self.upstream_sessions().any(|upstream_session| {
            let replica = upstream_session.instance.replica();
            replica.is_none_or(|replica| replica.is_up() && !replica.liveness.is_suspected())
        })
    }
}

/// The progress values of one call.
#[derive(Clone, Copy, Debug, Default)]
struct Values {
    last: Option<f64>,
    has_heartbeats: bool,
}

impl Values {
    /// Records a value of the server. Returns the value to send instead, if that differs.
    fn pass(&mut self, value: f64) -> Option<f64> {
        let raised = self.last.filter(|last| self.has_heartbeats && value <= *last).and_then(next_above);
        self.last = Some(raised.unwrap_or(value));
        raised
    }

    /// Returns the value of a heartbeat. `None` if there is no number above the last value.
    fn step(&mut self) -> Option<f64> {
        let value = self.last.map_or(Some(0.0), next_above)?;
        (self.last, self.has_heartbeats) = (Some(value), true);
        Some(value)
    }
}

fn next_above(last: f64) -> Option<f64> {
    let next = last + (last.abs() * RELATIVE_STEP).max(MIN_STEP);
    (next.is_finite() && next > last).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator, so that every run tries the same values.
    struct Rng(u64);

    impl Rng {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.0 >> 33
        }
    }

    /// Heartbeats and increasing values of the server in any order. After the first heartbeat the
    /// server's values may be anything.
    #[test]
    fn values_increase_in_every_interleaving() {
        for seed in 0..2000 {
            let (mut rng, mut values, mut sent) = (Rng(seed), Values::default(), Vec::new());
            let scale = 10f64.powi((rng.next() % 16) as i32 - 4);
            let mut server = -scale * (rng.next() % 3) as f64;
            let mut has_heartbeats = false;
            for _ in 0..60 {
                if rng.next() % 2 == 0 {
                    has_heartbeats = true;
                    sent.push(values.step().unwrap());
                } else {
                    server += scale * (rng.next() % 4 + 1) as f64 / 4.0;
                    let is_wrong = has_heartbeats && rng.next() % 4 == 0;
                    let value = if is_wrong { server - scale * 2.0 } else { server };
                    sent.push(values.pass(value).unwrap_or(value));
                }
            }
            let printed: Vec<f64> = sent.iter().map(|value| value.to_string().parse().unwrap()).collect();
            assert!(printed.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: {printed:?}");
        }
    }

    #[test]
    fn values_of_the_server_are_passed_unchanged_without_heartbeats() {
        let mut values = Values::default();
        assert_eq!([3.0, 1.0, 1.0].map(|value| values.pass(value)), [None; 3]);
        assert_eq!(values.step(), Some(1.0 + MIN_STEP));
        assert_eq!(values.pass(2.0), None);
        assert!(values.pass(2.0).is_some_and(|raised| raised > 2.0));
    }

    #[test]
    fn there_is_no_heartbeat_above_the_largest_number() {
        let mut values = Values::default();
        values.pass(f64::MAX);
        assert_eq!(values.step(), None);
    }
}
