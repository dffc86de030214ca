//! Callbacks from the MCP client of an upstream session: server requests, notifications, a lost
//! session, and the state of the standalone stream.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use steadfast_client::{
    BoxFuture, ClientHandler, Error, Event, LostSessionAction, Misrouting, Notification, OpenSession,
    ReplayRequest, RequestId, ServerRequest,
};
use steadfast_wire::Reason;
use steadfast_wire::rpc::ErrorObject;

use crate::errors;
use crate::session::client_session::ClientSession;

pub(crate) struct Callbacks {
    client_session: Weak<ClientSession>,
    /// The index of the lane of the client session that this upstream session belongs to.
    lane: usize,
    pub(crate) session_no: u64,
    /// The name of the server instance that holds the upstream session.
    instance: String,
    /// True after the first warning about misrouted answers. Further ones are logged for debugging.
    has_warned_of_race: AtomicBool,
}

impl Callbacks {
    pub(crate) fn new(
        client_session: Weak<ClientSession>,
        lane: usize,
        session_no: u64,
        instance: String,
    ) -> Self {
        Self { client_session, lane, session_no, instance, has_warned_of_race: AtomicBool::new(false) }
    }

    fn open_client_session(&self) -> Option<Arc<ClientSession>> {
        self.client_session.upgrade().filter(|session| !session.is_closed())
    }

    /// Returns false if the lane uses another upstream session already. A replaced upstream session
    /// stays open while it has calls, and must not change the lane.
    fn is_current_in(&self, client_session: &ClientSession) -> bool {
        client_session.lanes[self.lane].upstream_session().is_none_or(|session| session.no == self.session_no)
    }

    /// The client could not open the standalone stream and keeps trying. Another replica may
    /// provide the stream meanwhile.
    fn standalone_lost(&self, error: Error) {
        // After a reload has replaced this upstream, it only finishes its calls and moves no
        // sessions.
        let Some(client_session) = self.open_client_session().filter(|session| !session.shared.is_replaced())
        else {
            return;
        };
        let session = client_session.short();
        let (lane, session_no) = (self.lane, self.session_no);
        if client_session.lanes[lane].has_lost_standalone.swap(true, Ordering::Relaxed) {
            tracing::debug!(session, %error, "still cannot open the standalone stream of the server");
        } else {
            tracing::warn!(session, %error, "cannot open the standalone stream of the server; its messages do not arrive until a retry succeeds");
        }
        tokio::spawn(async move { client_session.move_standalone_stream(lane, session_no, &error).await });
    }

    /// Handles a sign that the server mixes up the answers to concurrent calls: sends it one call
    /// at a time from now on, or warns once per upstream session.
    fn handle_race(&self, sign: Misrouting) {
        let Some(client_session) = self.client_session.upgrade() else { return };
        if client_session.serialise(self.session_no, sign) {
            return;
        }
        let session = client_session.short();
        if self.has_warned_of_race.swap(true, Ordering::Relaxed) {
            tracing::debug!(session, %sign, "the server mixed up its answers again");
        } else if client_session.gets_one_call_at_a_time() {
            tracing::warn!(session, %sign, "the server mixes up its answers although it gets one call at a time");
        } else {
            tracing::warn!(
                session,
                %sign,
                "the server seems to mix up the answers to concurrent calls of one session; \
                 set `concurrency = 1` or `--concurrency 1` to send it one call at a time"
            );
        }
    }

    /// The client's answer to a server request could not be delivered. If the server rejected the
    /// client's credentials, the call that the request belongs to cannot continue, so it fails.
    fn answer_lost(&self, call: Option<RequestId>, error: &Error) {
        let Some(client_session) = self.client_session.upgrade() else { return };
        tracing::warn!(session = client_session.short(), %error, "could not deliver the client's answer to a server request");
        let denial = errors::denial_of_call(error).filter(|_| client_session.shared.forwards_credentials());
        let call = call.and_then(|call| client_session.in_flight.find(self.session_no, &call));
        if let (Some(denial), Some(call)) = (denial, call) {
            tokio::spawn(async move { call.fail(&denial.error).await });
        }
    }
}

impl ClientHandler for Callbacks {
    fn on_server_request(&self, server_request: ServerRequest) -> BoxFuture<'_, Result<Bytes, ErrorObject>> {
        Box::pin(async move {
            match self.client_session.upgrade() {
                Some(client_session) => client_session.send_request(self.session_no, server_request).await,
                None => Err(Reason::ServerRequestWithdrawn.error("The client's session has ended.")),
            }
        })
    }

    fn on_notification(&self, notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(client_session) = self.client_session.upgrade() {
                client_session.forward_notification(self.lane, notification).await;
            }
        })
    }

    fn on_session_lost(&self, session: OpenSession) -> BoxFuture<'_, LostSessionAction> {
        Box::pin(async move {
            match self.open_client_session() {
                Some(client_session) if self.is_current_in(&client_session) => {
                    client_session.lost_session_action(self.lane, &self.instance, &session).await
                }
                Some(_) => LostSessionAction::Moved,
                None => LostSessionAction::End,
            }
        })
    }

    fn on_session_renewed(
        &self,
        lost: OpenSession,
        session: OpenSession,
    ) -> BoxFuture<'_, Result<Vec<ReplayRequest>, LostSessionAction>> {
        Box::pin(async move {
            match self.open_client_session() {
                Some(client_session) if self.is_current_in(&client_session) => {
                    client_session.renewed(self.lane, &self.instance, &lost, &session).await
                }
                Some(_) => Err(LostSessionAction::Moved),
                None => Err(LostSessionAction::End),
            }
        })
    }

    fn on_event(&self, event: Event) {
        match event {
            Event::StandaloneLost(error) => self.standalone_lost(error),
            Event::StandaloneOpen => {
                if let Some(client_session) = self.client_session.upgrade() {
                    client_session.lanes[self.lane].has_lost_standalone.store(false, Ordering::Relaxed);
                }
            }
            Event::MisroutingSuspected(sign) => self.handle_race(sign),
            Event::AnswerLost { call, error, .. } => self.answer_lost(call, &error),
            // A gap is announced as changes of lists and of subscribed resources. The first lane
            // receives the same list changes, and other lanes have no subscriptions.
            Event::Gap if self.lane > 0 => {}
            Event::Gap => {
                let client_session =
                    self.open_client_session().filter(|client_session| self.is_current_in(client_session));
                if let Some(client_session) = client_session {
                    client_session.announce_missed_events();
                }
            }
            Event::SessionRenewed | Event::StandaloneAbsent => {}
        }
    }
}
