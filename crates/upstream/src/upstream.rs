//! The backend.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_engine::backend::BoxFuture;
use steadfast_engine::{
    Answer, Backend, CallHandle, ExchangeHandle, Facts, Incoming, SessionHandle, Welcome,
};
use steadfast_wire::rpc::ErrorObject;

use crate::config::Config;

/// A server somewhere else, as the engine sees it.
#[derive(Debug)]
pub struct Upstream {
    config: Config,
}

/// Why an upstream could not be started: its configuration is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("there is no address")]
    NoAddress,
    #[error("{0} is not the address of a server: write http://HOST:PORT/PATH")]
    BadAddress(String),
}

impl Upstream {
    /// Nothing is sent yet: a server that is down now may be up when it is needed.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Ok(Self { config })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }
}

fn unavailable() -> ErrorObject {
    ErrorObject::internal("upstream_unavailable", "The server cannot be reached.", true)
}

impl Backend for Upstream {
    fn initialize(&self, _facts: Arc<Facts>, _request: Incoming) -> BoxFuture<Result<Welcome, ErrorObject>> {
        Box::pin(async { Err(unavailable()) })
    }

    fn call(&self, _call: CallHandle, _request: Incoming) -> BoxFuture<Result<Bytes, ErrorObject>> {
        Box::pin(async { Err(unavailable()) })
    }

    fn serve(&self, _exchange: ExchangeHandle, _request: Incoming) -> BoxFuture<Answer> {
        Box::pin(async { Err(unavailable()) })
    }

    fn notify(&self, _session: SessionHandle, _notification: Incoming) -> BoxFuture<()> {
        Box::pin(async {})
    }
}
