//! Whether a server has forgotten a session: it is asked, where a refusal leaves that open.

use http::StatusCode;
use steadfast_wire::rpc::METHOD_NOT_FOUND;

use super::Session;
use crate::error::Error;
use crate::link::Reply;
use crate::message::{self, Answer};
use crate::shared::Shared;

/// Whether the server has forgotten a session in which it has refused something. A ping has no reason to be refused but the
/// session: there are servers that know no GET and say 404 to it, and all that say 400 to what they cannot read.
pub(super) async fn is_forgotten(shared: &Shared, session: &Session) -> Result<bool, Error> {
    let id = shared.link.next_id();
    let ping = message::request(&id, "ping", None);
    let (_, reply) = shared.link.request(&id, session.revision, session.headers(), ping).await?;
    let Reply::Refusal { status, body, answer, .. } = reply else { return Ok(false) };
    if answer.as_ref().and_then(Answer::code) == Some(i64::from(METHOD_NOT_FOUND)) {
        return Ok(false);
    }
    let status = StatusCode::from_u16(status).unwrap_or_default();
    // Whoever looks at the ping itself has found its session.
    let is_answered = || {
        let list = shared.link.messages(&body, session.revision).unwrap_or_default();
        list.iter().any(|message| message.answer_to(&id).is_some())
    };
    Ok(session.is_lost(status) || session.may_be_lost(status) && !is_answered())
}
