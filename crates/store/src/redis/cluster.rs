//! The connection to a Redis cluster.
//!
//! The client library follows the redirections of a cluster by sending a request again. By the same
//! mechanism it repeats a request whose connection broke, and does not report that. A commit that
//! took effect the first time would then look like a conflict with another process. So the library
//! is configured to send each request once. It still updates its slot map from a `MOVED`
//! redirection, and the caller retries anyway.
//!
//! One redirection must be followed at once: `ASK`, which a cluster sends while it moves a slot.
//! For that there is a second client. Its replies are marked as [`Delivery::MaybeRepeated`].

use std::sync::{Arc, OnceLock};

use redis::aio::ConnectionLike as _;
use redis::cluster::{ClusterClient, ClusterClientBuilder, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, ErrorKind, ProtocolVersion, PushInfo, RedisError, ServerErrorKind, Value};

use super::RedisOptions;

/// How often a request may have reached a server when its reply arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Delivery {
    Once,
    MaybeRepeated,
}

/// A connection to a cluster. Clones share it.
#[derive(Clone)]
pub(super) struct Cluster {
    /// Sends each request once.
    once: ClusterConnection,
    redirect_client: Arc<RedirectClient>,
}

/// A client that follows redirections. Its connection is opened when it is first needed.
struct RedirectClient {
    client: ClusterClient,
    connection: OnceLock<ClusterConnection>,
}

impl Cluster {
    /// Prepares the connection without waiting for the servers. The first request waits.
    pub(super) fn new(
        options: &RedisOptions,
        on_push: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> Result<Self, RedisError> {
        let once = builder(options).retries(0).push_sender(on_push).build()?;
        let redirect_client =
            RedirectClient { client: builder(options).build()?, connection: OnceLock::new() };
        Ok(Self { once: connection(&once), redirect_client: Arc::new(redirect_client) })
    }

    pub(super) async fn request(&self, command: &Cmd) -> (Result<Value, RedisError>, Delivery) {
        let answer = self.once.clone().req_packed_command(command).await.and_then(Value::extract_error);
        match answer {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                let RedirectClient { client, connection: made } = &*self.redirect_client;
                let mut redirect_client = made.get_or_init(|| connection(client)).clone();
                let answer = redirect_client.req_packed_command(command).await;
                (answer.and_then(Value::extract_error), Delivery::MaybeRepeated)
            }
            answer => (answer, Delivery::Once),
        }
    }

    /// Sends `PING` to a random server that is connected.
    pub(super) async fn ping(&self) -> Result<(), RedisError> {
        let any_server = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
        let answer = self.once.clone().route_command(redis::cmd("PING"), any_server).await;
        answer.and_then(Value::extract_error).map(drop)
    }

    pub(super) async fn subscribe(&self, channel: &str) -> Result<(), RedisError> {
        self.once.clone().ssubscribe(channel).await
    }

    pub(super) async fn unsubscribe(&self, channel: &str) -> Result<(), RedisError> {
        self.once.clone().sunsubscribe(channel).await
    }
}

fn builder(options: &RedisOptions) -> ClusterClientBuilder {
    ClusterClient::builder(options.urls.iter().map(String::as_str))
        .use_protocol(ProtocolVersion::RESP3)
        .connection_timeout(options.connect_timeout)
        .response_timeout(options.response_timeout)
}

fn connection(client: &ClusterClient) -> ClusterConnection {
    client.get_pending_async_connection_with_config(ClusterConfig::new())
}
