//! Attaches connections to streams, and reports to the store what they have received.

use std::sync::Arc;

use steadfast_session::Step;
use steadfast_session::command::{Attach, Attached, Deliver, Detach, Position};
use steadfast_store::{StoreError, StoreExt};
use steadfast_wire::{EventId, RequestId};

use crate::delivery::{Cursor, Tail};
use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::sessions::LiveSession;
use crate::shutdown::InFlightCount;

impl Engine {
    /// Attaches a connection to the stream of the event `after`, behind that event. Without it,
    /// attaches the connection to a standalone stream.
    pub async fn attach(
        &self,
        session: &Arc<LiveSession>,
        after: Option<EventId>,
    ) -> Result<Cursor, Refusal> {
        let admitted = self.admission.admit()?;
        let at = match after {
            Some(id) if id.tag != session.tag() => return Err(Refusal::UnknownEvent),
            Some(id) => Position::After { stream: steadfast_session::StreamNo(id.stream), seq: id.seq },
            None => Position::Standalone,
        };
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.run_detached(async move {
            let cursor = engine.attach_admitted(&session, at, &[]).await;
            drop(admitted);
            cursor
        })
        .await
    }

    /// Attaches a connection of an admitted request. `unresumable_calls` are the calls whose client
    /// cannot reconnect for the answers.
    pub(crate) async fn attach_admitted(
        &self,
        session: &Arc<LiveSession>,
        at: Position,
        unresumable_calls: &[RequestId],
    ) -> Result<Cursor, Refusal> {
        let attach = Attach { at, node: self.node() };
        session.attach_started();
        let mut attached = self.store().run(session.id(), attach.clone(), self.now()).await;
        if let (Err(StoreError::Unknown(_)), Position::After { .. }) = (&attached, at) {
            // If the first attempt took effect, the second one supersedes it.
            attached = self.store().run(session.id(), attach, self.now()).await;
        }
        if let Ok(Attached::Attached { stream, connection, after }) = attached {
            let tail = Arc::new(Tail::of_existing_stream(connection, self.options().tail_bytes));
            tail.set_unresumable_calls(unresumable_calls.to_vec());
            session.attach_succeeded(stream, connection, &tail);
            if let Position::After { .. } = at {
                // The node that has to start the call may not know of it.
                session.mark_awaits_remote_start();
            }
            if self.is_draining() && tail.can_reconnect() {
                // The drain may have started before this connection was registered.
                tail.request_reconnect();
            }
            return Ok(self.cursor(session, tail, stream, connection, after));
        }
        session.attach_failed();
        if let Err(StoreError::Unknown(_)) = attached {
            // The store may hold an attachment that no connection uses.
            session.mark_needs_reconcile();
        }
        Err(match attached? {
            Attached::UnknownEvent => Refusal::UnknownEvent,
            Attached::Gone => Refusal::Gone,
            Attached::OverLimit(limit) => Refusal::OverLimit(limit),
            Attached::NoSession | Attached::Attached { .. } => self.session_gone(session),
        })
    }

    /// Creates the cursor of an attached connection. A drain waits for it if its client cannot
    /// reconnect.
    pub(crate) fn cursor(
        &self,
        session: &Arc<LiveSession>,
        tail: Arc<Tail>,
        stream: steadfast_session::StreamNo,
        connection: steadfast_session::ConnNo,
        after: u64,
    ) -> Cursor {
        let holds_drain = !tail.can_reconnect();
        let mut cursor = Cursor::new(self.arc(), Arc::clone(session), tail, stream, connection, after);
        if holds_drain {
            cursor.hold_drain(InFlightCount::increment(&self.admission.calls));
        }
        cursor
    }

    /// Records that a connection broke. Until the store has recorded it, the session counts as
    /// attached.
    pub(crate) fn detach_later(
        &self,
        session: &Arc<LiveSession>,
        stream: steadfast_session::StreamNo,
        connection: steadfast_session::ConnNo,
        through: u64,
    ) {
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.spawn(async move {
            let detach = Detach { stream, connection, through };
            let recorded = engine.with_retry(|| engine.store().run(session.id(), detach.clone(), engine.now())).await;
            if let Err(error) = recorded {
                tracing::warn!(session = %session.id().short(), %error, "could not record a broken connection; the session is marked for reconciliation");
                session.mark_needs_reconcile();
            }
        });
    }

    /// Reports the position of a connection, so that the store can drop events. If the report is
    /// lost, the store keeps them longer.
    pub(crate) fn deliver_later(
        &self,
        session: &Arc<LiveSession>,
        stream: steadfast_session::StreamNo,
        connection: steadfast_session::ConnNo,
        through: u64,
    ) {
        let deliver = Deliver { stream, connection, through };
        let reported = self.store().apply(session.id(), deliver.into_command(), self.now());
        self.spawn(async move { drop(reported.await) });
    }
}
