//! [`Connection`]: sends requests to Redis and classifies its errors.

use redis::aio::ConnectionManagerConfig;
use redis::{
    Client, Cmd, ErrorKind, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError, Script,
    ServerErrorKind, Value,
};
use tokio::sync::mpsc;

use super::RedisOptions;
use super::cluster::{Cluster, Delivery};
use super::single_server::SingleServer;
use crate::error::StoreError;
use crate::remote::database::{ChangeHint, StoreResult};

/// A Lua script of this store. The store calls it by its hash. If the server does not know the
/// hash, the store sends the text of the script with the request. So no script has to be loaded in
/// advance, or again after `SCRIPT FLUSH`, a restart or a failover.
#[derive(Debug)]
pub(super) struct LuaScript {
    text: &'static str,
    hash: String,
}

impl LuaScript {
    pub(super) fn new(text: &'static str) -> Self {
        Self { text, hash: Script::new(text).get_hash().to_owned() }
    }
}

/// The connection for all requests and hints. Requests are pipelined. After a failure the
/// connection reconnects by itself.
#[derive(Clone)]
pub(super) enum Connection {
    Single(SingleServer),
    Cluster(Cluster),
}

impl Connection {
    /// Returns true if the URL is a valid Redis address.
    pub(super) fn is_valid_url(url: &str) -> bool {
        url.into_connection_info().is_ok()
    }

    /// Prepares the connection without waiting for the server. The first request waits.
    pub(super) fn open(options: &RedisOptions, hints: mpsc::Sender<ChangeHint>) -> StoreResult<Self> {
        let on_push = move |push: PushInfo| {
            if let Some(hint) = parse_hint(&push) {
                // If the channel is full, the hint is dropped, and nodes find the change by
                // polling.
                let _ = hints.try_send(hint);
            }
            Ok::<(), ()>(())
        };
        let opened = if options.cluster {
            Cluster::new(options, on_push).map(Self::Cluster)
        } else {
            Self::single(options, on_push)
        };
        opened.map_err(|error| StoreError::Unavailable(error.to_string()))
    }

    fn single(
        options: &RedisOptions,
        on_push: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> Result<Self, RedisError> {
        let Some(url) = options.urls.first() else {
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, "no address is set")));
        };
        let info = url.as_str().into_connection_info()?;
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings))?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.response_timeout))
            // The worker of the store retries.
            .set_number_of_retries(0)
            .set_push_sender(on_push)
            .set_automatic_resubscription();
        SingleServer::new(client, config).map(Self::Single)
    }

    pub(super) async fn run(&self, script: &LuaScript, keys: &[&[u8]], args: &[&[u8]]) -> StoreResult<Value> {
        self.run_with_delivery(script, keys, args).await.map(|(answer, _)| answer)
    }

    /// Like [`Connection::run`], and also returns how often the script may have run.
    pub(super) async fn run_with_delivery(
        &self,
        script: &LuaScript,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> StoreResult<(Value, Delivery)> {
        let command = |name: &str, source: &str| {
            let mut command = redis::cmd(name);
            command.arg(source).arg(keys.len()).arg(keys).arg(args);
            command
        };
        let (answer, delivery) = match self.request(&command("EVALSHA", &script.hash)).await {
            (Err(error), before) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let (answer, delivery) = self.request(&command("EVAL", script.text)).await;
                (answer, delivery.max(before))
            }
            other => other,
        };
        answer.map(|answer| (answer, delivery)).map_err(|error| self.classify_error(&error, delivery))
    }

    pub(super) async fn query(&self, command: &Cmd) -> StoreResult<Value> {
        let (answer, delivery) = self.request(command).await;
        answer.map_err(|error| self.classify_error(&error, delivery))
    }

    /// Sends a cheap request: to a single server a lookup of one of the store's keys, in a cluster
    /// a `PING` to any server.
    pub(super) async fn ping(&self, key: &str) -> StoreResult<()> {
        match self {
            Self::Single(_) => self.query(redis::cmd("EXISTS").arg(key)).await.map(drop),
            Self::Cluster(cluster) => {
                cluster.ping().await.map_err(|error| self.classify_error(&error, Delivery::Once))
            }
        }
    }

    fn classify_error(&self, error: &RedisError, delivery: Delivery) -> StoreError {
        match self {
            Self::Single(_) => classify_error(error),
            Self::Cluster(_) => classify_cluster_error(error, delivery),
        }
    }

    async fn request(&self, command: &Cmd) -> (Result<Value, RedisError>, Delivery) {
        match self {
            Self::Single(connection) => (connection.request(command).await, Delivery::Once),
            Self::Cluster(cluster) => cluster.request(command).await,
        }
    }

    pub(super) async fn publish(&self, channel: &str, message: &str) -> StoreResult<()> {
        let name = if matches!(self, Self::Single(_)) { "PUBLISH" } else { "SPUBLISH" };
        self.query(redis::cmd(name).arg(channel).arg(message)).await.map(drop)
    }

    pub(super) async fn subscribe(&self, channel: &str) -> StoreResult<()> {
        match self {
            Self::Single(connection) => connection.subscribe(channel).await,
            Self::Cluster(connection) => connection.subscribe(channel).await,
        }
        .map_err(|error| self.classify_error(&error, Delivery::Once))
    }

    pub(super) async fn unsubscribe(&self, channel: &str) -> StoreResult<()> {
        match self {
            Self::Single(connection) => connection.unsubscribe(channel).await,
            Self::Cluster(connection) => connection.unsubscribe(channel).await,
        }
        .map_err(|error| self.classify_error(&error, Delivery::Once))
    }
}

/// Returns the hint in a message, if the push is a message with a valid hint.
fn parse_hint(push: &PushInfo) -> Option<ChangeHint> {
    if !matches!(push.kind, PushKind::Message | PushKind::SMessage) {
        return None;
    }
    let Some(Value::BulkString(text)) = push.data.get(1) else { return None };
    ChangeHint::parse(std::str::from_utf8(text).ok()?)
}

/// Classifies an error of a cluster. The request had no effect if the server says that it is not
/// responsible, or cannot work now. Any other error may belong to another request: if the client
/// fails to discover the servers, it reports that to all waiting requests.
fn classify_cluster_error(error: &RedisError, delivery: Delivery) -> StoreError {
    use ServerErrorKind::{Ask, ClusterDown, Moved, ReadOnly, TryAgain};
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Server(Ask | ClusterDown | Moved | ReadOnly | TryAgain) if delivery == Delivery::Once => {
            StoreError::Unavailable(text)
        }
        _ => StoreError::Unknown(text),
    }
}

/// Classifies an error of a single server. The request had no effect if the server replied with an
/// error or refuses connections. In all other cases it may have had an effect.
fn classify_error(error: &RedisError) -> StoreError {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => StoreError::Unavailable(text),
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::Client
        | ErrorKind::ClusterConnectionNotFound
        | ErrorKind::RESP3NotSupported => StoreError::Unavailable(text),
        _ if error.is_connection_refusal() => StoreError::Unavailable(text),
        _ => StoreError::Unknown(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_may_have_had_an_effect_is_unknown() {
        use ServerErrorKind::{BusyLoading, ClusterDown, Moved};
        let error = |kind: ErrorKind| RedisError::from((kind, "an error"));
        let is_unknown = |error: StoreError| matches!(error, StoreError::Unknown(_));
        // The expected result for a single server, for a cluster, and for a cluster with a repeated
        // request.
        for (kind, expected) in [
            (ErrorKind::Server(Moved), [false, false, true]),
            (ErrorKind::Server(ClusterDown), [false, false, true]),
            (ErrorKind::Server(BusyLoading), [false, true, true]),
            (ErrorKind::ClusterConnectionNotFound, [false, true, true]),
            (ErrorKind::Extension, [false, true, true]),
            (ErrorKind::Io, [true, true, true]),
        ] {
            let session_lookup = [
                classify_error(&error(kind)),
                classify_cluster_error(&error(kind), Delivery::Once),
                classify_cluster_error(&error(kind), Delivery::MaybeRepeated),
            ];
            assert_eq!(session_lookup.map(is_unknown), expected, "{kind:?}");
        }
    }
}
