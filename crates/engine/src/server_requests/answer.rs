//! Accepts the client's answers to server requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use steadfast_session::ServerRequestNo;
use steadfast_session::command::{Answer, Answered};
use steadfast_store::{StoreError, StoreExt};
use steadfast_wire::RequestId;

use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::sessions::LiveSession;

impl Engine {
    /// Accepts the client's answer to a server request. `message` is the JSON-RPC message.
    /// Fails with [`Refusal::UnknownServerRequest`] if no such request waits for an answer.
    pub async fn answer(
        &self,
        session: &Arc<LiveSession>,
        id: &RequestId,
        message: Bytes,
    ) -> Result<(), Refusal> {
        let server_request = ServerRequestNo::from_wire_id(id).ok_or(Refusal::UnknownServerRequest)?;
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.run_detached(async move { engine.answer_and_send_next(&session, server_request, message).await })
            .await
    }

    async fn answer_and_send_next(
        &self,
        session: &Arc<LiveSession>,
        server_request: ServerRequestNo,
        message: Bytes,
    ) -> Result<(), Refusal> {
        session.server_requests().answer_started();
        let enqueued = self.store_answer(session, server_request, message).await;
        session.server_requests().answer_finished();
        self.send_server_requests(session);
        enqueued
    }

    /// Stores the answer, of which the store accepts one per request, and gives it to the waiter if
    /// that is on this node. If the outcome is unknown, the command is repeated under the same
    /// name:
    ///
    /// - If it took effect and the waiter is on another node, the store still has the answer and
    ///   says so.
    /// - If it took effect and the waiter is on this node, the request is gone from the store while
    ///   the waiter still waits. No other answer can be the reason: the store keeps an answer that
    ///   another node accepted until this node has collected it.
    /// - Otherwise the answer may have been stored and collected, or another answer was. Then the
    ///   client gets an error that says that the outcome is unknown.
    async fn store_answer(
        &self,
        session: &Arc<LiveSession>,
        server_request: ServerRequestNo,
        message: Bytes,
    ) -> Result<(), Refusal> {
        let (node, attempt) = (self.node(), self.attempts.fetch_add(1, Ordering::Relaxed));
        let answer = Answer { server_request, node, attempt, message: message.clone() };
        let send = || self.store().run(session.id(), answer.clone(), self.now());
        let first = send().await;
        let doubt = first.as_ref().err().filter(|error| matches!(error, StoreError::Unknown(_))).cloned();
        let outcome = if doubt.is_some() { self.with_retry(send).await } else { first };
        if doubt.is_some() && !matches!(outcome, Ok(Answered::Answered { .. } | Answered::Stored { .. })) {
            // If the request was resolved and its answer is lost, reconciliation tells the waiter.
            session.mark_needs_reconcile();
        }
        match outcome? {
            Answered::Answered { .. } => session.server_requests().answered(server_request, message),
            Answered::Stored { .. } => {}
            Answered::Unknown
                if doubt.is_some() && session.server_requests().answered_if_open(server_request, message) => {
            }
            Answered::Unknown => return Err(doubt.map_or(Refusal::UnknownServerRequest, Refusal::Store)),
            Answered::AlreadyAnswered => return Err(Refusal::UnknownServerRequest),
            Answered::OverLimit(limit) => return Err(Refusal::OverLimit(limit)),
            Answered::NoSession => return Err(self.session_gone(session)),
        }
        Ok(())
    }
}
