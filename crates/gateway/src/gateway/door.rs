//! Who may use an endpoint: asked of every request, and told to whoever wants to know how to get in.

use std::sync::Arc;

use http::request::Parts;
use steadfast::Denied;
use steadfast_auth::{Forward, Jwt, Metadata, StartError};
use steadfast_engine::SystemClock;
use steadfast_http::{Identified, Identify, PrincipalOf};

use super::namespace::Namespace;
use crate::config::AuthPlan;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) principal: PrincipalOf,
    /// Where clients get what they have to show, if they are asked for it here.
    pub(crate) metadata: Option<Metadata>,
    /// Whoever verifies it, if somebody does here.
    pub(super) jwt: Option<Jwt>,
}

impl Door {
    /// With the keys of the one before, if there are any that hold.
    pub(crate) async fn open(
        plan: &AuthPlan,
        namespace: &Namespace,
        before: Option<&Jwt>,
    ) -> Result<Self, StartError> {
        let namespace = namespace.clone();
        Ok(match plan {
            AuthPlan::None => {
                let everybody = namespace.principal("");
                let principal = Arc::new(move |_: &Parts| Ok::<_, Denied>(everybody.clone()));
                Self { principal, metadata: None, jwt: None }
            }
            AuthPlan::Forward => {
                let principal = Arc::new(Here { namespace, who: Forward });
                Self { principal, metadata: None, jwt: None }
            }
            AuthPlan::Jwt(settings) => {
                let settings = settings.as_ref().clone();
                let who = match before {
                    Some(before) => before.with(settings)?,
                    None => Jwt::start(settings, Arc::new(SystemClock)).await?,
                };
                let (metadata, jwt) = (Some(who.metadata()), Some(who.clone()));
                Self { principal: Arc::new(Here { namespace, who }), metadata, jwt }
            }
        })
    }
}

/// The same name at another endpoint is another principal.
struct Here<W> {
    namespace: Namespace,
    who: W,
}

impl<W: Identify> Identify for Here<W> {
    fn identify(&self, parts: &Parts) -> Identified {
        let namespace = self.namespace.clone();
        self.who.identify(parts).map(move |who| namespace.principal(who.as_str()))
    }
}
