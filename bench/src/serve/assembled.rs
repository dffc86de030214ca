//! The parts of a gateway, assembled by hand, so that one mechanism of it can be exchanged for the
//! ordinary one.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use steadfast_client::transport::{Body, BrokenBody, Http, SendError, Transport};
use steadfast_client::{BoxFuture, Limits, Timeouts};
use steadfast_engine::{Engine, Options, Rules, SystemClock, SystemEntropy};
use steadfast_http::listen::{self, Plain, Workers};
use steadfast_http::{Config, Endpoint};
use steadfast_store::MemoryStore;
use steadfast_upstream::Upstream;

use super::{Common, on_runtime};
use crate::Error;

#[derive(Debug, Args)]
pub(crate) struct Assembled {
    #[command(flatten)]
    common: Common,
    /// The URL of the upstream server.
    #[arg(long)]
    upstream: Uri,
    /// Serve connections on threads with a runtime each, as the gateway does. Without it one
    /// ordinary runtime serves them.
    #[arg(long)]
    workers: bool,
}

/// Serves a gateway with sessions in memory.
pub(super) fn serve(options: &Assembled) -> Result<(), Error> {
    on_runtime(&options.common, async |listener| {
        let upstream = Arc::new(
            Upstream::start(steadfast_upstream::Config::http(vec![options.upstream.clone()])).await?,
        );
        let store = Arc::new(MemoryStore::new(Rules::default()));
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let engine = Engine::start(store, upstream, clock, entropy, Options::default(), Vec::new()).await?;
        let workers =
            if options.workers { Workers::start(options.common.threads)? } else { Workers::default() };
        let endpoint = Endpoint::new(engine, Config::default());
        let (limits, never) = (listen::Limits::default(), std::future::pending());
        listen::serve_with(&workers, Plain, listener, endpoint, limits, never, std::future::ready(()))
            .await?;
        Ok(())
    })?
}

/// Who sends the requests to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sender {
    /// The transport of `steadfast-client`.
    Own,
    /// hyper's client with its pool.
    Hyper,
}

impl Sender {
    pub(crate) fn transport(self) -> Arc<dyn Transport> {
        match self {
            Self::Own => Arc::new(Http::new(&Timeouts::default(), &Limits::default())),
            Self::Hyper => {
                let mut connector = HttpConnector::new();
                connector.set_nodelay(true);
                Arc::new(Hyper(legacy::Client::builder(TokioExecutor::new()).build(connector)))
            }
        }
    }
}

/// hyper's client as a transport.
struct Hyper(legacy::Client<HttpConnector, Full<Bytes>>);

impl Transport for Hyper {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, SendError>> {
        let response = self.0.request(request.map(Full::new));
        Box::pin(async {
            let response = response.await.map_err(|error| SendError::Broken(error.to_string()))?;
            Ok(response.map(|body| body.map_err(|error| BrokenBody(error.to_string())).boxed_unsync()))
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct Waiting {
    #[arg(long)]
    upstream: Uri,
    #[arg(long)]
    sender: Sender,
    /// How many responses to wait for.
    #[arg(long)]
    responses: usize,
}

/// Opens responses that send nothing, and keeps them open until the process ends.
pub(super) fn wait(options: &Waiting) -> Result<(), Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let transport = options.sender.transport();
        let mut waiting = Vec::new();
        for _ in 0..options.responses {
            let mut request = Request::new(Bytes::new());
            *request.uri_mut() = options.upstream.clone();
            let mut body = transport.send(request).await?.into_body();
            // The server sends one comment and nothing more.
            body.frame().await.ok_or("a response without content")??;
            waiting.push(tokio::spawn(async move { body.frame().await.is_some() }));
        }
        tokio::task::yield_now().await;
        writeln!(std::io::stdout(), "listening on {}", options.upstream)?;
        std::future::pending().await
    })
}
