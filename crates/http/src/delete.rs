//! DELETE: end a session.

use http::request::Parts;
use http::{Response, StatusCode};
use steadfast_engine::{CloseReason, Principal};

use crate::body::ResponseBody;
use crate::endpoint::{Claimed, Endpoint, claimed_version, empty};
use crate::problem::Problem;

impl Endpoint {
    pub(crate) async fn delete(
        &self,
        parts: &Parts,
        principal: &Principal,
    ) -> Result<Response<ResponseBody>, Problem> {
        if let Claimed::Modern(_) = claimed_version(parts)? {
            // Stateless revisions have no DELETE.
            return Err(Problem::method_not_allowed());
        }
        let session = self.session(parts, principal).await?;
        self.engine.close(&session, CloseReason::Deleted).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }
}
