//! Finds out with a ping whether the server has lost a session, if the status of a refusal leaves
//! that open.

use http::StatusCode;
use steadfast_wire::rpc::METHOD_NOT_FOUND;

use super::Session;
use crate::error::Error;
use crate::peer::{Answer, Reply, message};
use crate::shared::Shared;

/// Returns true if the server has lost the session. Sends a ping, which a server refuses only
/// because of the session. It may refuse other requests for other reasons: with 404 because it does
/// not support GET, or with 400 because it cannot parse the request.
pub(super) async fn is_unknown_to_server(shared: &Shared, session: &Session) -> Result<bool, Error> {
    let id = shared.peer.next_id();
    let ping = message::request(&id, "ping", None);
    let (_, reply) = shared.peer.request(&id, session.revision, session.headers(), ping).await?;
    let Reply::Refusal { status, body, answer, .. } = reply else { return Ok(false) };
    // The server has found the session, and does not know pings.
    if answer.as_ref().and_then(Answer::code) == Some(i64::from(METHOD_NOT_FOUND)) {
        return Ok(false);
    }
    let status = StatusCode::from_u16(status).unwrap_or_default();
    // A server that answers the ping itself has found the session.
    let is_answered = || {
        let list = shared.peer.messages(&body, session.revision).unwrap_or_default();
        list.iter().any(|message| message.answer_to(&id).is_some())
    };
    Ok(session.status_means_lost(status) || session.status_may_mean_lost(status) && !is_answered())
}
