//! Determines the principal of a request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use steadfast_engine::Principal;

/// Determines who sent a request. Called for every POST, GET and DELETE that has passed the guard,
/// with or without a session, before anything else reads the request.
///
/// A function from the head of a request to a principal implements this trait.
pub trait Identify: Send + Sync + 'static {
    fn identify(&self, parts: &Parts) -> Identified;
}

pub type PrincipalOf = Arc<dyn Identify>;

/// A principal that is known immediately, without an allocation, or a future that determines it.
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

    /// Maps the principal.
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

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Status 401. The client is to blame. The challenge is the value of `WWW-Authenticate`, for
    /// instance `Bearer`.
    Unauthenticated { challenge: String },
    /// Status 403. The client is to blame.
    Forbidden,
    /// Status 403. The client is to blame and can request more scopes. The challenge is the value
    /// of `WWW-Authenticate`.
    InsufficientScope { challenge: String },
    /// Status 503. The principal cannot be determined now. The identity provider or this server is
    /// to blame.
    Unavailable { retry_after: Duration },
}
