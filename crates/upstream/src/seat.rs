//! Where a session sits at the server: which replica, and the client that speaks to it there.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use http::Uri;
use steadfast_client::transport::Transport;
use steadfast_client::{Client, OpenSession};
use tokio::time::Instant;

use crate::config::Vigil;
use crate::replicas::{Replica, Replicas, Taken};
use crate::stateless::Era;
use crate::stdio::{Child, Programs};
use crate::vigil::Waiting;

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
    /// Made when a trial is answered: most seats never need one.
    trust: OnceLock<Box<Mutex<Trust>>>,
}

/// How far it is to be believed that the server is there because a trial was answered.
#[derive(Debug, Default)]
struct Trust {
    /// When that was, if no call was answered since.
    vouched: Option<Instant>,
    /// A call that began later was refused all the same.
    is_broken: bool,
}

impl Seat {
    pub(crate) fn new(no: u64, place: Place, client: Client) -> Self {
        Self { no, place, client, trust: OnceLock::new() }
    }

    /// A trial was answered.
    pub(crate) fn vouch(&self) {
        let trust = self.trust.get_or_init(Box::default);
        locked(trust).vouched = Some(Instant::now());
    }

    /// A call was answered.
    pub(crate) fn answered(&self) {
        if let Some(trust) = self.trust.get() {
            *locked(trust) = Trust::default();
        }
    }

    /// A call that began then met somebody who says that the server is away. Those that began before a trial show nothing new.
    pub(crate) fn refused(&self, begun: Instant) {
        let Some(mut trust) = self.trust.get().map(|trust| locked(trust)) else { return };
        trust.is_broken |= trust.vouched.is_some_and(|vouched| vouched <= begun);
    }

    /// Whether trials are answered by somebody else than calls are.
    pub(crate) fn is_feigned(&self) -> bool {
        self.trust.get().is_some_and(|trust| locked(trust).is_broken)
    }
}

fn locked(trust: &Mutex<Trust>) -> MutexGuard<'_, Trust> {
    trust.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every process of the server.
#[derive(Clone, Debug)]
pub(crate) enum Servers {
    Http(Arc<Replicas>),
    Stdio {
        programs: Arc<Programs>,
        /// The process that serves requests without a session.
        stateless: Arc<OnceLock<Arc<Child>>>,
        era: Arc<Era>,
    },
}

impl Servers {
    pub(crate) fn stdio(programs: Programs) -> Self {
        Self::Stdio { programs: Arc::new(programs), stateless: Arc::default(), era: Arc::default() }
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

    /// The place with this name at which there is, or was, this session of the server's.
    pub(crate) fn find(&self, session: &str, name: &str, open: &OpenSession) -> Option<Place> {
        match self {
            Self::Http(replicas) => replicas.find(name).map(|replica| Place::at(&replica)),
            Self::Stdio { programs, era, .. } => {
                let id = open.id.as_deref().unwrap_or_default();
                (name == PROGRAM).then(|| Place::program(programs.child_with(id, session), era))
            }
        }
    }

    /// Whether a session that is at this place of others' goes on here.
    pub(crate) fn go_on_at(&self, name: &str, before: &Self) -> bool {
        match (self, before) {
            (Self::Http(replicas), Self::Http(_)) => replicas.find(name).is_some(),
            // All programs are called the same.
            (Self::Stdio { programs, .. }, Self::Stdio { programs: before, .. }) => {
                Arc::ptr_eq(programs, before)
            }
            _ => false,
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

    /// Somebody waits for an answer from this place.
    pub(crate) fn wait_at(&self, place: &Place, vigil: Vigil) -> Option<Waiting> {
        match self {
            Self::Http(replicas) => place.replica().map(|replica| Waiting::at(replica, replicas, vigil)),
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
