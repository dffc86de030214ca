//! The connection: what is sent, and what its failures mean.

use redis::aio::ConnectionManagerConfig;
use redis::{Client, Cmd, ErrorKind, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError};
use redis::{Script, ServerErrorKind, Value};
use tokio::sync::mpsc;

use super::RedisOptions;
use super::cluster::{Cluster, Sent};
use super::single::Single;
use crate::error::StoreError;
use crate::remote::backing::{Answer, Told};

/// A script of this store. Sent by its hash; a server that does not know it gets its text with the request, so nothing has
/// to be loaded beforehand, nor again after `SCRIPT FLUSH`, a restart or a failover.
#[derive(Debug)]
pub(super) struct Source {
    text: &'static str,
    hash: String,
}

impl Source {
    pub(super) fn new(text: &'static str) -> Self {
        Self { text, hash: Script::new(text).get_hash().to_owned() }
    }
}

/// One connection for all requests and for news: requests are pipelined on it, and it comes back by itself.
#[derive(Clone)]
pub(super) enum Link {
    Single(Single),
    Cluster(Cluster),
}

impl Link {
    /// Whether this is an address at all.
    pub(super) fn understands(url: &str) -> bool {
        url.into_connection_info().is_ok()
    }

    /// Does not wait for the server: the first request does.
    pub(super) fn open(options: &RedisOptions, news: mpsc::Sender<Told>) -> Answer<Self> {
        let hear = move |push: PushInfo| {
            if let Some(session) = heard(&push) {
                // Beyond the bound it is lost, and found by looking from time to time.
                let _ = news.try_send(session);
            }
            Ok::<(), ()>(())
        };
        let opened = if options.cluster {
            Cluster::new(options, hear).map(Self::Cluster)
        } else {
            Self::single(options, hear)
        };
        opened.map_err(|error| StoreError::Unavailable(error.to_string()))
    }

    fn single(
        options: &RedisOptions,
        hear: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> Result<Self, RedisError> {
        let Some(url) = options.urls.first() else {
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, "no address")));
        };
        let info = url.as_str().into_connection_info()?;
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings))?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.response_timeout))
            // Whoever waits tries again anyway.
            .set_number_of_retries(0)
            .set_push_sender(hear)
            .set_automatic_resubscription();
        Single::new(client, config).map(Self::Single)
    }

    pub(super) async fn run(&self, script: &Source, keys: &[&[u8]], args: &[&[u8]]) -> Answer<Value> {
        self.run_noting(script, keys, args).await.map(|(answer, _)| answer)
    }

    /// The same, with how often the script may have run.
    pub(super) async fn run_noting(
        &self,
        script: &Source,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Answer<(Value, Sent)> {
        let command = |name: &str, source: &str| {
            let mut command = redis::cmd(name);
            command.arg(source).arg(keys.len()).arg(keys).arg(args);
            command
        };
        let (answer, sent) = match self.request(&command("EVALSHA", &script.hash)).await {
            (Err(error), before) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let (answer, sent) = self.request(&command("EVAL", script.text)).await;
                (answer, sent.max(before))
            }
            other => other,
        };
        answer.map(|answer| (answer, sent)).map_err(|error| self.meaning(&error, sent))
    }

    pub(super) async fn query(&self, command: &Cmd) -> Answer<Value> {
        let (answer, sent) = self.request(command).await;
        answer.map_err(|error| self.meaning(&error, sent))
    }

    /// Asks a single server for a key of ours, and a cluster for any of its servers.
    pub(super) async fn ping(&self, key: &str) -> Answer<()> {
        match self {
            Self::Single(_) => self.query(redis::cmd("EXISTS").arg(key)).await.map(drop),
            Self::Cluster(cluster) => cluster.ping().await.map_err(|error| self.meaning(&error, Sent::Once)),
        }
    }

    fn meaning(&self, error: &RedisError, sent: Sent) -> StoreError {
        match self {
            Self::Single(_) => meaning(error),
            Self::Cluster(_) => meaning_in_cluster(error, sent),
        }
    }

    async fn request(&self, command: &Cmd) -> (Result<Value, RedisError>, Sent) {
        match self {
            Self::Single(connection) => (connection.request(command).await, Sent::Once),
            Self::Cluster(cluster) => cluster.request(command).await,
        }
    }

    pub(super) async fn publish(&self, channel: &str, message: &str) -> Answer<()> {
        let name = if matches!(self, Self::Single(_)) { "PUBLISH" } else { "SPUBLISH" };
        self.query(redis::cmd(name).arg(channel).arg(message)).await.map(drop)
    }

    pub(super) async fn subscribe(&self, channel: &str) -> Answer<()> {
        match self {
            Self::Single(connection) => connection.subscribe(channel).await,
            Self::Cluster(connection) => connection.subscribe(channel).await,
        }
        .map_err(|error| self.meaning(&error, Sent::Once))
    }

    pub(super) async fn unsubscribe(&self, channel: &str) -> Answer<()> {
        match self {
            Self::Single(connection) => connection.unsubscribe(channel).await,
            Self::Cluster(connection) => connection.unsubscribe(channel).await,
        }
        .map_err(|error| self.meaning(&error, Sent::Once))
    }
}

/// What somebody tells.
fn heard(push: &PushInfo) -> Option<Told> {
    if !matches!(push.kind, PushKind::Message | PushKind::SMessage) {
        return None;
    }
    let Some(Value::BulkString(text)) = push.data.get(1) else { return None };
    Told::parse(std::str::from_utf8(text).ok()?)
}

/// What an error means in a cluster: nothing was done if the server says that it is not the one to ask, or not now. All else may
/// tell of another request: what the client fails at when it looks for the servers is told to all who wait.
fn meaning_in_cluster(error: &RedisError, sent: Sent) -> StoreError {
    use ServerErrorKind::{Ask, ClusterDown, Moved, ReadOnly, TryAgain};
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Server(Ask | ClusterDown | Moved | ReadOnly | TryAgain) if sent == Sent::Once => {
            StoreError::Unavailable(text)
        }
        _ => StoreError::Unknown(text),
    }
}

/// What an error means: an answer of the server says that nothing was done, and so does a server that refuses connections. All
/// else may have happened.
fn meaning(error: &RedisError) -> StoreError {
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
    fn what_may_have_happened_is_never_said_not_to_have() {
        use ServerErrorKind::{BusyLoading, ClusterDown, Moved};
        let error = |kind: ErrorKind| RedisError::from((kind, "an error"));
        let is_done_perhaps = |error: StoreError| matches!(error, StoreError::Unknown(_));
        // A server that is asked itself, one of a cluster, and one of a cluster that may have been asked twice.
        for (kind, expected) in [
            (ErrorKind::Server(Moved), [false, false, true]),
            (ErrorKind::Server(ClusterDown), [false, false, true]),
            (ErrorKind::Server(BusyLoading), [false, true, true]),
            (ErrorKind::ClusterConnectionNotFound, [false, true, true]),
            (ErrorKind::Extension, [false, true, true]),
            (ErrorKind::Io, [true, true, true]),
        ] {
            let found = [
                meaning(&error(kind)),
                meaning_in_cluster(&error(kind), Sent::Once),
                meaning_in_cluster(&error(kind), Sent::PerhapsMore),
            ];
            assert_eq!(found.map(is_done_perhaps), expected, "{kind:?}");
        }
    }
}
