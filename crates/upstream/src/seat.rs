//! Where a session sits at the server: which replica, and the client that speaks to it there.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use http::Uri;
use steadfast_client::Client;
use steadfast_client::transport::Transport;

use crate::replicas::{Replica, Replicas, Taken};
use crate::stateless::Era;
use crate::stdio::{Child, Programs};

/// What the place of a program is called: there is one.
const PROGRAM: &str = "stdio";

/// A process of the server that a session can be opened at.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) url: Uri,
    pub(crate) transport: Arc<dyn Transport>,
    /// For requests without a session.
    pub(crate) era: Arc<Era>,
    /// The session's share in the load of its replica.
    taken: Option<Taken>,
}

impl Place {
    fn program(child: Arc<Child>, era: &Arc<Era>) -> Self {
        Self {
            name: PROGRAM.to_owned(),
            // Nobody resolves it: the transport knows its program.
            url: Uri::from_static("http://stdio/mcp"),
            transport: child,
            era: Arc::clone(era),
            taken: None,
        }
    }

    fn at(replica: &Arc<Replica>) -> Self {
        Self {
            name: replica.name.clone(),
            url: replica.url.clone(),
            transport: Arc::clone(&replica.transport),
            era: Arc::clone(&replica.era),
            taken: Some(replica.take()),
        }
    }

    pub(crate) fn replica(&self) -> Option<&Arc<Replica>> {
        self.taken.as_ref().map(|taken| &taken.0)
    }
}

/// A session at the server.
pub(crate) struct Seat {
    /// Which one of its session it is. Ids of calls are unique on a seat, and no further.
    pub(crate) no: u64,
    pub(crate) place: Place,
    pub(crate) client: Client,
    refusals: AtomicU32,
}

impl Seat {
    pub(crate) fn new(no: u64, place: Place, client: Client) -> Self {
        Self { no, place, client, refusals: AtomicU32::new(0) }
    }

    /// A call was answered, or not because the server is away by the word of whoever stands before it.
    pub(crate) fn note(&self, is_away: bool) {
        if is_away {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        } else {
            self.refusals.store(0, Ordering::Relaxed);
        }
    }

    /// Whether one call after the other finds the server away.
    pub(crate) fn is_refused_again(&self) -> bool {
        self.refusals.load(Ordering::Relaxed) > 1
    }
}

/// Every process of the server.
#[derive(Debug)]
pub(crate) enum Servers {
    Http(Arc<Replicas>),
    Stdio {
        programs: Programs,
        /// The process that serves requests without a session.
        stateless: OnceLock<Arc<Child>>,
        era: Arc<Era>,
    },
}

impl Servers {
    pub(crate) fn stdio(programs: Programs) -> Self {
        Self::Stdio { programs, stateless: OnceLock::new(), era: Arc::default() }
    }

    /// The best place that was not tried. The session is named for the log.
    pub(crate) fn next(&self, session: &str, tried: &[String]) -> Option<Place> {
        match self {
            Self::Http(replicas) => replicas.next(tried).map(|replica| Place::at(&replica)),
            Self::Stdio { programs, era, .. } => {
                tried.is_empty().then(|| Place::program(programs.child(session), era))
            }
        }
    }

    pub(crate) fn find(&self, session: &str, name: &str) -> Option<Place> {
        match self {
            Self::Http(replicas) => replicas.find(name).map(|replica| Place::at(&replica)),
            Self::Stdio { programs, era, .. } => {
                (name == PROGRAM).then(|| Place::program(programs.child(session), era))
            }
        }
    }

    /// Where requests without a session go: the best place that was not tried.
    pub(crate) fn stateless(&self, tried: &[String]) -> Option<Place> {
        match self {
            Self::Http(replicas) => replicas.next(tried).map(|replica| Place::at(&replica)),
            Self::Stdio { .. } if !tried.is_empty() => None,
            Self::Stdio { programs, stateless, era } => {
                let child = stateless.get_or_init(|| programs.child("stateless"));
                Some(Place::program(Arc::clone(child), era))
            }
        }
    }

    /// Whether they are children of this process.
    pub(crate) fn are_programs(&self) -> bool {
        matches!(self, Self::Stdio { .. })
    }

    pub(crate) fn has_other(&self, name: &str) -> bool {
        match self {
            Self::Http(replicas) => replicas.has_other(name),
            Self::Stdio { .. } => false,
        }
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("no", &self.no).field("place", &self.place).finish_non_exhaustive()
    }
}
