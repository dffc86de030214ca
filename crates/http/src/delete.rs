//! DELETE: end a session.

use http::request::Parts;
use http::{Response, StatusCode};
use steadfast_engine::{CloseReason, Principal};

use crate::body::ResponseBody;
use crate::endpoint::{Endpoint, empty, legacy_only};
use crate::problem::Problem;

impl Endpoint {
    pub(crate) async fn delete(
        &self,
        parts: &Parts,
        principal: &Principal,
    ) -> Result<Response<ResponseBody>, Problem> {
        legacy_only(parts)?;
        let session = self.session(parts, principal).await?;
        self.engine.close(&session, CloseReason::Deleted).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }
}
