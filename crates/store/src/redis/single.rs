//! The connection to a single server, which always comes back.
//!
//! A manager of the client library keeps the outcome of its attempt to connect. It makes another one if the network failed, but not
//! if what the server said could not be read, because the connection broke in the middle of a word, or was a refusal, because it
//! had too many clients: then everything fails for ever. So it is replaced here.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::aio::{ConnectionLike as _, ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, ErrorKind, RedisError, Value};

/// Refusals in a row after which it is not believed that they concern what was asked for.
const REFUSALS: u32 = 8;

/// Clones are the same connection.
#[derive(Clone)]
pub(super) struct Single(Arc<Inner>);

struct Inner {
    client: Client,
    config: ConnectionManagerConfig,
    state: Mutex<State>,
}

struct State {
    manager: ConnectionManager,
    /// How many managers there were before.
    generation: u64,
    refusals: u32,
    channels: BTreeSet<String>,
    /// The manager has not been told of the channels that one before it knew.
    is_deaf: bool,
}

impl Single {
    /// Does not wait for the server: the first request does.
    pub(super) fn new(client: Client, config: ConnectionManagerConfig) -> Result<Self, RedisError> {
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?;
        let state = State { manager, generation: 0, refusals: 0, channels: BTreeSet::new(), is_deaf: false };
        Ok(Self(Arc::new(Inner { client, config, state: Mutex::new(state) })))
    }

    pub(super) async fn request(&self, command: &Cmd) -> Result<Value, RedisError> {
        let (mut manager, generation) = self.manager();
        let answer = manager.req_packed_command(command).await.and_then(Value::extract_error);
        self.judge(&answer, generation);
        if answer.is_ok() {
            self.listen_again(&mut manager).await;
        }
        answer
    }

    pub(super) async fn subscribe(&self, channel: &str) -> Result<(), RedisError> {
        self.state().channels.insert(channel.to_owned());
        let (mut manager, generation) = self.manager();
        let heard = manager.subscribe(channel).await;
        self.judge(&heard, generation);
        heard
    }

    pub(super) async fn unsubscribe(&self, channel: &str) -> Result<(), RedisError> {
        self.state().channels.remove(channel);
        self.manager().0.unsubscribe(channel).await
    }

    fn manager(&self) -> (ConnectionManager, u64) {
        let state = self.state();
        (state.manager.clone(), state.generation)
    }

    /// Replaces the manager if it will never have another answer.
    fn judge<T>(&self, answer: &Result<T, RedisError>, generation: u64) {
        let mut state = self.state();
        let Err(error) = answer else {
            state.refusals = 0;
            return;
        };
        // It sees to these by itself; and an unknown script is an answer as good as any.
        let is_fine =
            error.is_io_error() || error.kind() == ErrorKind::Server(redis::ServerErrorKind::NoScript);
        if is_fine || state.generation != generation {
            return;
        }
        state.refusals += 1;
        let is_answer = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        if is_answer && state.refusals < REFUSALS {
            return;
        }
        let Inner { client, config, .. } = &*self.0;
        if let Ok(manager) = ConnectionManager::new_lazy_with_config(client.clone(), config.clone()) {
            tracing::info!(%error, "the connection to Redis is made anew");
            state.manager = manager;
            state.generation += 1;
            state.refusals = 0;
            state.is_deaf = !state.channels.is_empty();
        }
    }

    /// Tells a new manager where news come. If that fails, somebody else tells it with their next request.
    async fn listen_again(&self, manager: &mut ConnectionManager) {
        let channels = {
            let mut state = self.state();
            if !state.is_deaf {
                return;
            }
            state.is_deaf = false;
            state.channels.clone()
        };
        for channel in channels {
            if manager.subscribe(channel).await.is_err() {
                self.state().is_deaf = true;
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
