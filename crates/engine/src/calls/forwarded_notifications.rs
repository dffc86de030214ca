//! Forwards client notifications to the node that must process them.
//!
//! A notification is forwarded inside a call that this node begins itself. The other node answers
//! that call when its backend has processed the notification.

use std::sync::Arc;

use steadfast_session::command::Duplicates;
use steadfast_wire::RequestId;

use crate::backend::IncomingMessage;
use crate::calls::ResponseFormat;
use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::sessions::{LiveSession, SessionHandle};
use crate::shutdown::InFlightCount;

/// Prefix of the ids of calls that carry a forwarded notification.
const FORWARDED_NOTIFICATION_ID: &str = "steadfast/notification/";

/// Returns true if the request carries a forwarded notification.
pub(crate) fn is_forwarded_notification(id: &RequestId, method: &str) -> bool {
    matches!(id, RequestId::Text(id) if id.starts_with(FORWARDED_NOTIFICATION_ID))
        && method.starts_with("notifications/")
}

impl Engine {
    /// Returns true if the backend's route for the notification names another node.
    pub(crate) async fn is_for_another_node(
        &self,
        session: &SessionHandle,
        request: &IncomingMessage,
    ) -> bool {
        self.route(session, request).await.node.is_some_and(|node| node != self.node())
    }

    /// Forwards a notification and waits until the other node has processed it.
    pub(crate) async fn forward_notification(
        &self,
        session: &Arc<LiveSession>,
        notification: IncomingMessage,
    ) -> Result<(), Refusal> {
        let id = RequestId::text(format!("{FORWARDED_NOTIFICATION_ID}{}", self.entropy().node_id()));
        // Not refused while draining: the client was told that its notification was accepted.
        let admitted = InFlightCount::increment(&self.admission.starting);
        let (requests, format) = (std::slice::from_ref(&notification), ResponseFormat::EventStream);
        let begun =
            self.begin_admitted(session, vec![id], requests, format, Duplicates::Reject, admitted).await?;
        for call in begun.calls {
            // The route has changed: this node runs the call itself. It is not forwarded again.
            drop(self.run_forwarded_call(call, notification.clone()).await);
        }
        begun.cursor.read_to_end().await;
        Ok(())
    }
}
