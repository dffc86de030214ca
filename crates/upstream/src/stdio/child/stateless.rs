//! Requests without a session.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use steadfast_client::transport::Body;
use steadfast_wire::rpc::{ErrorObject, METHOD_NOT_FOUND};
use steadfast_wire::{Message, RequestId};

use super::super::mail::End;
use super::super::process::{Flight, Process, WriteError};
use super::super::reply::{json, not_found, refuse};
use super::super::router::Sender;
use super::super::unavailable::Unavailable;
use super::{Child, answered};
use crate::config::Sharing;
use crate::stateless::{Verdict, verdict_of};

/// How long a program may take to answer `server/discover`. Some with sessions ignore what they do not know; then it counts
/// as unknown to them.
const DISCOVER_PATIENCE: Duration = Duration::from_secs(10);
/// How often a request is offered to a process that ends before it takes anything.
const MAX_ATTEMPTS: usize = 3;

const DISCOVER: &str = "server/discover";

impl Child {
    /// Serves a request that needs no session.
    pub(super) async fn serve_stateless(&self, message: &Message<'_>, id: &RequestId) -> Response<Body> {
        if message.method == DISCOVER {
            return self.discover(message, id).await;
        }
        match self.begin_stateless(Sender::Stateless, message, id).await {
            Ok(flight) => answered(flight).await,
            Err(unavailable) => unavailable.for_now().response(id),
        }
    }

    /// Asks the program which revisions it speaks. If it does not know the question, it has sessions: then
    /// the process is kept for the next session, which otherwise would have to start another.
    async fn discover(&self, message: &Message<'_>, id: &RequestId) -> Response<Body> {
        let mut flight = match self.begin_stateless(Sender::Probe, message, id).await {
            Ok(flight) => flight,
            Err(unavailable) => return unavailable.for_now().response(id),
        };
        let process = Arc::clone(flight.process());
        let (response, verdict) = match tokio::time::timeout(DISCOVER_PATIENCE, flight.reader.first()).await {
            Ok(Some(End::Answer(text))) => {
                let answer = std::str::from_utf8(&text).ok().and_then(|text| Message::parse(text).ok());
                let verdict = answer.as_ref().map(verdict_of);
                (json(StatusCode::OK, text), verdict)
            }
            // The program has ended. The gateway treats it like a program that does not know the question.
            Ok(_) => (not_found(), None),
            Err(_) => {
                let error =
                    ErrorObject::new(METHOD_NOT_FOUND, format!("the program does not answer {DISCOVER}"));
                (refuse(StatusCode::NOT_FOUND, Some(id), &error), None)
            }
        };
        drop(flight);
        if verdict != Some(Verdict::Stateless) {
            self.give_up_for_session(&process);
        }
        response
    }

    /// Sends a request that needs no session, to a new process if there is none.
    async fn begin_stateless(
        &self,
        sender: Sender,
        message: &Message<'_>,
        id: &RequestId,
    ) -> Result<Flight, Unavailable> {
        for _ in 0..MAX_ATTEMPTS {
            // Under the lock under which a process is given up.
            let begun = {
                let current = self.current();
                let process = current.process.as_ref().filter(|process| !process.is_gone());
                process.map(|process| process.begin(sender, message, id))
            };
            match begun {
                Some(Ok(flight)) => return Ok(flight),
                Some(Err(WriteError::Gone)) | None => {}
                Some(Err(error)) => return Err(Unavailable::now(error.to_string())),
            }
            self.running(&mut self.starts.lock().await.restarts).await?;
        }
        Err(Unavailable::now(WriteError::Gone.to_string()))
    }

    /// Keeps the process for the next session, if nothing but `server/discover` was ever sent to it.
    fn give_up_for_session(&self, process: &Arc<Process>) {
        let mut current = self.current();
        let is_current = current.process.as_ref().is_some_and(|own| Arc::ptr_eq(own, process));
        if self.yard.stdio.sharing == Sharing::PerSession
            && is_current
            && process.is_fresh()
            && self.yard.keep_spare(process)
        {
            current.process = None;
        }
    }
}
