//! Server instances: the HTTP replica or the stdio process at which an upstream session is opened.

use std::sync::{Arc, OnceLock};

use http::Uri;
use steadfast_client::OpenSession;
use steadfast_client::transport::Transport;

use crate::config::HealthCheck;
use crate::replicas::health::ResponseWait;
use crate::replicas::replica::{LoadGuard, Replica};
use crate::replicas::replica_set::Replicas;
use crate::stateless::EraDetection;
use crate::stdio::{ProcessPool, ProcessTransport};

/// The name of a stdio program in the stored placement.
const STDIO_NAME: &str = "stdio";

/// A replica, or the process of a stdio program, at which upstream sessions are opened.
pub(crate) struct ServerInstance {
    pub(crate) name: String,
    pub(crate) url: Uri,
    pub(crate) transport: Arc<dyn Transport>,
    /// Whether the instance serves requests without a session.
    pub(crate) era: Arc<EraDetection>,
    /// Counts the upstream session toward the load of its replica.
    load: Option<LoadGuard>,
}

impl ServerInstance {
    fn stdio(transport: Arc<ProcessTransport>, era: &Arc<EraDetection>) -> Self {
        Self {
            name: STDIO_NAME.to_owned(),
            // Never resolved: the transport leads to the process.
            url: Uri::from_static("http://stdio/mcp"),
            transport,
            era: Arc::clone(era),
            load: None,
        }
    }

    fn http(replica: &Arc<Replica>) -> Self {
        Self {
            name: replica.name.clone(),
            url: replica.url.clone(),
            transport: Arc::clone(&replica.transport),
            era: Arc::clone(&replica.era),
            load: Some(replica.count_session()),
        }
    }

    pub(crate) fn replica(&self) -> Option<&Arc<Replica>> {
        self.load.as_ref().map(|load| &load.0)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum ServerInstances {
    Http(Arc<Replicas>),
    Stdio {
        pool: Arc<ProcessPool>,
        /// The process that serves requests without a session.
        stateless: Arc<OnceLock<Arc<ProcessTransport>>>,
        era: Arc<EraDetection>,
    },
}

impl ServerInstances {
    pub(crate) fn stdio(pool: ProcessPool) -> Self {
        Self::Stdio { pool: Arc::new(pool), stateless: Arc::default(), era: Arc::default() }
    }

    /// Returns the best instance that is not in `tried`. `session` is for logs.
    pub(crate) fn next(&self, session: &str, tried: &[String]) -> Option<ServerInstance> {
        match self {
            Self::Http(replicas) => replicas.next(tried).map(|replica| ServerInstance::http(&replica)),
            Self::Stdio { pool, era, .. } => {
                tried.is_empty().then(|| ServerInstance::stdio(pool.transport(session), era))
            }
        }
    }

    /// Returns the instance with this name, at which this upstream session is or was.
    pub(crate) fn find(&self, session: &str, name: &str, open: &OpenSession) -> Option<ServerInstance> {
        match self {
            Self::Http(replicas) => replicas.find(name).map(|replica| ServerInstance::http(&replica)),
            Self::Stdio { pool, era, .. } => {
                let id = open.id.as_deref().unwrap_or_default();
                (name == STDIO_NAME)
                    .then(|| ServerInstance::stdio(pool.transport_for_session(id, session), era))
            }
        }
    }

    /// Returns the replica with this name.
    pub(crate) fn replica(&self, name: &str) -> Option<Arc<Replica>> {
        match self {
            Self::Http(replicas) => replicas.find(name),
            Self::Stdio { .. } => None,
        }
    }

    /// Returns true if upstream sessions at an instance of `previous` can be continued here.
    pub(crate) fn continue_at(&self, name: &str, previous: &Self) -> bool {
        match (self, previous) {
            (Self::Http(replicas), Self::Http(_)) => replicas.find(name).is_some(),
            // All stdio programs have the same name.
            (Self::Stdio { pool, .. }, Self::Stdio { pool: previous, .. }) => Arc::ptr_eq(pool, previous),
            _ => false,
        }
    }

    /// Returns the best instance that is not in `tried`, for a request without a session.
    pub(crate) fn stateless(&self, tried: &[String]) -> Option<ServerInstance> {
        match self {
            Self::Http(replicas) => replicas.next(tried).map(|replica| ServerInstance::http(&replica)),
            Self::Stdio { .. } if !tried.is_empty() => None,
            Self::Stdio { pool, stateless, era } => {
                let transport = stateless.get_or_init(|| pool.transport("stateless"));
                Some(ServerInstance::stdio(Arc::clone(transport), era))
            }
        }
    }

    /// Returns true if the server is a child process of this node.
    pub(crate) fn is_stdio(&self) -> bool {
        matches!(self, Self::Stdio { .. })
    }

    /// Registers that a request waits for a response of this instance. `None` for a stdio process,
    /// which needs no health check.
    pub(crate) fn await_response(
        &self,
        instance: &ServerInstance,
        health_check: HealthCheck,
    ) -> Option<ResponseWait> {
        match self {
            Self::Http(replicas) => {
                instance.replica().map(|replica| ResponseWait::new(replica, replicas, health_check))
            }
            Self::Stdio { .. } => None,
        }
    }

    pub(crate) fn has_other(&self, name: &str) -> bool {
        match self {
            Self::Http(replicas) => replicas.has_other(name),
            Self::Stdio { .. } => false,
        }
    }
}

impl std::fmt::Debug for ServerInstance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerInstance").field("name", &self.name).finish_non_exhaustive()
    }
}
