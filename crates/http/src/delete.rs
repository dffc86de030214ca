//! DELETE: ends a session.

use http::request::Parts;
use http::{Response, StatusCode};
use steadfast_engine::{CloseReason, Principal};

use crate::mcp_endpoint::Endpoint;
use crate::request::headers::legacy_only;
use crate::response::body::ResponseBody;
use crate::response::empty;
use crate::response::problem::Problem;

impl Endpoint {
    pub(crate) async fn delete(
        &self,
        parts: &Parts,
        principal: &Principal,
    ) -> Result<Response<ResponseBody>, Problem> {
        legacy_only(parts, &self.config.revisions)?;
        let session = self.session(parts, principal).await?;
        self.engine.close(&session, CloseReason::Deleted).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }
}
