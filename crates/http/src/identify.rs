//! Who is calling.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use steadfast_engine::Principal;

/// Tells who sent a request. It sees every POST, GET and DELETE that passed the checks of header size, host and origin, with
/// or without a session, before anything else does.
///
/// A function from the head of a request to a principal is one that always knows at once.
pub trait Identify: Send + Sync + 'static {
    fn identify(&self, parts: &Parts) -> Identified;
}

pub type PrincipalOf = Arc<dyn Identify>;

/// Who it is, or who will find out. Whoever knows at once need not allocate for it.
pub enum Identified {
    Known(Result<Principal, Denied>),
    Pending(Pin<Box<dyn Future<Output = Result<Principal, Denied>> + Send>>),
}

impl Identified {
    pub async fn principal(self) -> Result<Principal, Denied> {
        match self {
            Self::Known(known) => known,
            Self::Pending(pending) => pending.await,
        }
    }

    /// Gives the principal another name.
    pub fn map(self, rename: impl FnOnce(Principal) -> Principal + Send + 'static) -> Self {
        match self {
            Self::Known(known) => Self::Known(known.map(rename)),
            Self::Pending(pending) => Self::Pending(Box::pin(async move { pending.await.map(rename) })),
        }
    }
}

impl fmt::Debug for Identified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(known) => f.debug_tuple("Known").field(known).finish(),
            Self::Pending(_) => f.debug_tuple("Pending").finish_non_exhaustive(),
        }
    }
}

impl<F> Identify for F
where
    F: Fn(&Parts) -> Result<Principal, Denied> + Send + Sync + 'static,
{
    fn identify(&self, parts: &Parts) -> Identified {
        Identified::Known(self(parts))
    }
}

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// 401: the client is to blame. The text is the value of `WWW-Authenticate`, for instance `Bearer`.
    Unauthenticated { challenge: String },
    /// 403: the client is to blame.
    Forbidden,
    /// 403: the client is to blame, and can do something about it. The text is the value of `WWW-Authenticate`.
    InsufficientScope { challenge: String },
    /// 503: nobody can tell yet who it is. Whoever knows, or we, are to blame.
    Unavailable { retry_after: Duration },
}
