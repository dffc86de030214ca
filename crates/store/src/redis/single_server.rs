//! The connection to a single Redis server, which recovers from every failure.
//!
//! A connection manager of the client library stores the result of its attempt to connect. It tries
//! again after a network error, but not after two other failures: a reply that cannot be parsed,
//! because the connection broke in the middle of it, and a refusal, because the server has too many
//! clients. After such a failure every request fails. This module then replaces the manager.

use std::collections::BTreeSet;
use std::sync::Arc;

use redis::aio::{ConnectionLike as _, ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, ErrorKind, RedisError, Value};
use steadfast_wire::Mutex;

/// After this many refusals in a row, the manager is replaced: the refusals probably concern the
/// connection and not the requests.
const MAX_CONSECUTIVE_REFUSALS: u32 = 8;

/// A connection to one server. Clones share it.
#[derive(Clone)]
pub(super) struct SingleServer(Arc<Inner>);

struct Inner {
    client: Client,
    config: ConnectionManagerConfig,
    state: Mutex<State>,
}

struct State {
    manager: ConnectionManager,
    /// How many managers were replaced.
    generation: u64,
    refusals: u32,
    channels: BTreeSet<String>,
    /// The current manager has not subscribed to the channels of its predecessor yet.
    needs_resubscribe: bool,
}

impl SingleServer {
    /// Prepares the connection without waiting for the server. The first request waits.
    pub(super) fn new(client: Client, config: ConnectionManagerConfig) -> Result<Self, RedisError> {
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?;
        let state = State {
            manager,
            generation: 0,
            refusals: 0,
            channels: BTreeSet::new(),
            needs_resubscribe: false,
        };
        Ok(Self(Arc::new(Inner { client, config, state: Mutex::new(state) })))
    }

    pub(super) async fn request(&self, command: &Cmd) -> Result<Value, RedisError> {
        let (mut manager, generation) = self.manager();
        let answer = manager.req_packed_command(command).await.and_then(Value::extract_error);
        self.replace_if_broken(&answer, generation);
        if answer.is_ok() {
            self.resubscribe(&mut manager).await;
        }
        answer
    }

    pub(super) async fn subscribe(&self, channel: &str) -> Result<(), RedisError> {
        self.0.state.lock().channels.insert(channel.to_owned());
        let (mut manager, generation) = self.manager();
        let subscribed = manager.subscribe(channel).await;
        self.replace_if_broken(&subscribed, generation);
        subscribed
    }

    pub(super) async fn unsubscribe(&self, channel: &str) -> Result<(), RedisError> {
        self.0.state.lock().channels.remove(channel);
        self.manager().0.unsubscribe(channel).await
    }

    fn manager(&self) -> (ConnectionManager, u64) {
        let state = self.0.state.lock();
        (state.manager.clone(), state.generation)
    }

    /// Replaces the manager if it cannot recover from this result by itself.
    fn replace_if_broken<T>(&self, answer: &Result<T, RedisError>, generation: u64) {
        let mut state = self.0.state.lock();
        let Err(error) = answer else {
            state.refusals = 0;
            return;
        };
        // The manager recovers from network errors by itself, and an unknown script is a normal
        // reply.
        let is_fine =
            error.is_io_error() || error.kind() == ErrorKind::Server(redis::ServerErrorKind::NoScript);
        if is_fine || state.generation != generation {
            return;
        }
        state.refusals += 1;
        let is_answer = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        if is_answer && state.refusals < MAX_CONSECUTIVE_REFUSALS {
            return;
        }
        let Inner { client, config, .. } = &*self.0;
        if let Ok(manager) = ConnectionManager::new_lazy_with_config(client.clone(), config.clone()) {
            tracing::info!(%error, "reconnecting to Redis: the current connection cannot recover from this error");
            state.manager = manager;
            state.generation += 1;
            state.refusals = 0;
            state.needs_resubscribe = !state.channels.is_empty();
        }
    }

    /// Subscribes a new manager to the channels. If that fails, the next request tries again.
    async fn resubscribe(&self, manager: &mut ConnectionManager) {
        let channels = {
            let mut state = self.0.state.lock();
            if !state.needs_resubscribe {
                return;
            }
            state.needs_resubscribe = false;
            state.channels.clone()
        };
        for channel in channels {
            if manager.subscribe(channel).await.is_err() {
                self.0.state.lock().needs_resubscribe = true;
                return;
            }
        }
    }
}
