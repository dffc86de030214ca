//! Closes the upstream sessions of a session that has ended and that this node does not serve,
//! because another node opened it. The stored placement names them.

use std::sync::Arc;

use steadfast_client::OpenSession;
use steadfast_engine::SessionHandle;
use tokio::sync::Semaphore;

use crate::config::{Credential, Server};
use crate::placement::stored_placement::Placement;
use crate::session::client_session::ClientSession;
use crate::session::registry::SessionRegistry;
use crate::upstream::Shared;

/// How many sessions are closed at a time. After a long outage all sessions of a node may end at
/// once. Each close takes as long as a request may take.
const MAX_CONCURRENT: usize = 16;

/// Limits how many sessions are closed at a time.
#[derive(Debug)]
pub(crate) struct CloseLimit(Semaphore);

impl Default for CloseLimit {
    fn default() -> Self {
        Self(Semaphore::new(MAX_CONCURRENT))
    }
}

/// Closes the upstream sessions that the stored placement of an ended session names. Tries each
/// once: if the server cannot be reached, it expires the session on its own.
pub(crate) async fn close_stored_sessions(
    shared: &Arc<Shared>,
    registry: &Arc<SessionRegistry>,
    session: &SessionHandle,
) {
    // A stdio process ends with the node that started it. Forwarded credentials are not stored, so
    // this node cannot close sessions that need them.
    let can_close = matches!(shared.config.server, Server::Http { .. })
        && !matches!(shared.config.credential, Credential::Forwarded);
    if !can_close {
        return;
    }
    // The semaphore is never closed.
    let Ok(_permit) = shared.close_limit.0.acquire().await else { return };
    let Some(placement) = Placement::load_after_end(session).await else { return };
    let client_session = ClientSession::new(shared, registry, Arc::clone(session.facts()));
    for lane in 0..placement.lanes.len() {
        if let Some((instance, open)) = placement.session(lane) {
            close_stored_session(&client_session, instance, open).await;
        }
    }
}

async fn close_stored_session(client_session: &ClientSession, instance: &str, open: OpenSession) {
    let name = client_session.short();
    let Some(instance) = client_session.shared.instances.find(&name, instance, &open) else { return };
    let closed = match client_session.resume(0, instance, open) {
        Ok(upstream_session) => upstream_session.client.close().await,
        Err(error) => Err(error),
    };
    if let Err(error) = closed {
        tracing::debug!(session = name, %error, "could not close an upstream session");
    }
}
