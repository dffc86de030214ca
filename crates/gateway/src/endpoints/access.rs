//! How one endpoint authenticates its clients: built from the configuration at start and by each
//! reload.

use std::sync::Arc;

use http::request::Parts;
use steadfast::Denied;
use steadfast_auth::{Forward, Jwt, Metadata, StartError};
use steadfast_engine::SystemClock;
use steadfast_http::PrincipalOf;

use super::namespace::Namespace;
use crate::config::AuthPlan;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) principal: PrincipalOf,
    /// Where clients get tokens, if the endpoint verifies tokens.
    pub(crate) metadata: Option<Metadata>,
    /// The verifier, whose keys a reload can take over.
    pub(super) jwt: Option<Jwt>,
}

impl Access {
    /// Every principal is in `namespace`. Uses the keys of `previous` instead of fetching them
    /// again.
    pub(crate) async fn new(
        plan: &AuthPlan,
        namespace: &Namespace,
        previous: Option<&Jwt>,
    ) -> Result<Self, StartError> {
        let prefix = namespace.prefix();
        Ok(match plan {
            AuthPlan::None => {
                let everyone = namespace.principal("");
                let principal = Arc::new(move |_: &Parts| Ok::<_, Denied>(everyone.clone()));
                Self { principal, metadata: None, jwt: None }
            }
            AuthPlan::Forward => {
                Self { principal: Arc::new(Forward::with_prefix(prefix)), metadata: None, jwt: None }
            }
            AuthPlan::Jwt(settings) => {
                let mut settings = settings.as_ref().clone();
                settings.principal_prefix = prefix.to_owned();
                let jwt = match previous {
                    Some(previous) => previous.with(settings)?,
                    None => Jwt::start(settings, Arc::new(SystemClock)).await?,
                };
                let (metadata, principal) = (Some(jwt.metadata()), Arc::new(jwt.clone()));
                Self { principal, metadata, jwt: Some(jwt) }
            }
        })
    }
}
