//! Applies a session update, which the store has committed, to the tails, calls and server requests
//! of this node.

use steadfast_session::NodeId;

use crate::sessions::LiveSession;

/// Work that an update requires. The caller does it later, because the store may hold a lock while
/// it signals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FollowUps {
    /// Queued server requests may be sent now.
    pub(crate) send_server_requests: bool,
    /// The store keeps answers for this node to collect.
    pub(crate) poll_store: bool,
}

impl LiveSession {
    /// Passes committed changes to the readers and calls that they concern.
    pub(crate) fn apply_update(
        &self,
        update: &steadfast_store::SessionUpdate<'_>,
        node: NodeId,
    ) -> FollowUps {
        let mut work = self.work();
        let work = &mut *work;
        for event in update.appended {
            match work.tails.get(&event.stream) {
                Some((_, tail)) => tail.push(event.seq, event.payload.clone()),
                None => work.record_early(Some(event.stream), None),
            }
        }
        for stream in update.grown {
            match work.tails.get(stream) {
                Some((_, tail)) => tail.mark_incomplete(),
                None => work.record_early(Some(*stream), None),
            }
        }
        for (stream, connection) in update.superseded {
            if let Some((_, tail)) = work.tails.get(stream) {
                tail.supersede(*connection);
            }
        }
        for (call, _) in update.stopped {
            if !work.stop(*call) {
                work.record_early(None, Some(*call));
            }
        }
        for stream in update.ended {
            match work.tails.get(stream) {
                Some((_, tail)) => tail.end(),
                None => work.record_early(Some(*stream), None),
            }
        }
        let poll_store = update.answers_stored.iter().any(|(_, owner)| *owner == node);
        if update.stopped.is_empty() && update.withdrawn.is_empty() {
            return FollowUps { send_server_requests: false, poll_store };
        }
        let mut server_requests = self.server_requests();
        for (server_request, _) in update.withdrawn.iter().filter(|(_, owner)| *owner == node) {
            server_requests.withdrawn(*server_request);
        }
        for (call, _) in update.stopped {
            server_requests.call_ended(*call);
        }
        FollowUps { send_server_requests: server_requests.has_queued(), poll_store }
    }
}
