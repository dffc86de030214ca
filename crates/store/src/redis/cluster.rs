//! The connection to a cluster.
//!
//! The client library follows a cluster's redirections, and by the same means it sends a request again whose connection broke:
//! nobody hears of that, and a commit that was done the first time looks like one that others were faster than. So it is told to
//! send a request once. It still learns from what it is told, and whoever waits tries again anyway. One redirection is left that has
//! to be followed there and then, for as long as a slot moves (`ASK`): for that there is a second client, and of its answers
//! everybody knows that they may be to the second of two requests.

use std::sync::{Arc, OnceLock};

use redis::aio::ConnectionLike as _;
use redis::cluster::{ClusterClient, ClusterClientBuilder, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, ErrorKind, ProtocolVersion, PushInfo, RedisError, ServerErrorKind, Value};

use super::RedisOptions;

/// How often a request may have reached a server by the time it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sent {
    Once,
    PerhapsMore,
}

/// Clones are the same connection.
#[derive(Clone)]
pub(super) struct Cluster {
    once: ClusterConnection,
    follower: Arc<Follower>,
}

/// Made when it is first needed.
struct Follower {
    client: ClusterClient,
    connection: OnceLock<ClusterConnection>,
}

impl Cluster {
    /// Does not wait for the servers: the first request does.
    pub(super) fn new(
        options: &RedisOptions,
        hear: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> Result<Self, RedisError> {
        let once = builder(options).retries(0).push_sender(hear).build()?;
        let follower = Follower { client: builder(options).build()?, connection: OnceLock::new() };
        Ok(Self { once: connection(&once), follower: Arc::new(follower) })
    }

    pub(super) async fn request(&self, command: &Cmd) -> (Result<Value, RedisError>, Sent) {
        let answer = self.once.clone().req_packed_command(command).await.and_then(Value::extract_error);
        match answer {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                let Follower { client, connection: made } = &*self.follower;
                let mut follower = made.get_or_init(|| connection(client)).clone();
                let answer = follower.req_packed_command(command).await;
                (answer.and_then(Value::extract_error), Sent::PerhapsMore)
            }
            answer => (answer, Sent::Once),
        }
    }

    /// Asks one of the servers, whichever is there.
    pub(super) async fn ping(&self) -> Result<(), RedisError> {
        let anybody = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
        let answer = self.once.clone().route_command(redis::cmd("PING"), anybody).await;
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
