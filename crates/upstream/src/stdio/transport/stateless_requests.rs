//! Requests without a session to a stdio process, and `server/discover`.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use steadfast_client::transport::Body;
use steadfast_wire::rpc::{ErrorObject, METHOD_NOT_FOUND};
use steadfast_wire::{Message, RequestId};

use crate::config::Sharing;
use crate::stateless::{ServerEra, era_in_answer};
use crate::stdio::process::lifecycle::{PendingRequest, Process, WriteError};
use crate::stdio::routing::outbox::End;
use crate::stdio::routing::router::Sender;
use crate::stdio::transport::http_response::{json, not_found, refuse};
use crate::stdio::transport::process_transport::{ProcessTransport, response_of};
use crate::stdio::transport::unavailable::Unavailable;

/// How long a program may take to answer `server/discover`. Some programs with sessions ignore
/// methods that they do not know.
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a request is sent to a process that ends before it gets the request.
const MAX_ATTEMPTS: usize = 3;

const DISCOVER: &str = "server/discover";

impl ProcessTransport {
    /// Serves a request without a session.
    pub(crate) async fn serve_stateless(&self, message: &Message<'_>, id: &RequestId) -> Response<Body> {
        if message.method == DISCOVER {
            return self.discover(message, id).await;
        }
        match self.begin_stateless(Sender::Stateless, message, id).await {
            Ok(request) => response_of(request).await,
            Err(unavailable) => unavailable.into_service_unavailable().response(id),
        }
    }

    /// Sends `server/discover`. A program that does not know the method has sessions. The next
    /// session uses the process of such a program instead of starting another one.
    async fn discover(&self, message: &Message<'_>, id: &RequestId) -> Response<Body> {
        let mut request = match self.begin_stateless(Sender::Probe, message, id).await {
            Ok(request) => request,
            Err(unavailable) => return unavailable.into_service_unavailable().response(id),
        };
        let process = Arc::clone(request.process());
        let (response, era) = match tokio::time::timeout(DISCOVER_TIMEOUT, request.reader.wait_first()).await
        {
            Ok(Some(End::Answer(text))) => {
                let answer = std::str::from_utf8(&text).ok().and_then(|text| Message::parse(text).ok());
                let era = answer.as_ref().map(era_in_answer);
                (json(StatusCode::OK, text), era)
            }
            // The program has ended. The gateway treats it like a program that does not know
            // `server/discover`.
            Ok(_) => (not_found(), None),
            Err(_) => {
                let error =
                    ErrorObject::new(METHOD_NOT_FOUND, format!("the program does not answer {DISCOVER}"));
                (refuse(StatusCode::NOT_FOUND, Some(id), &error), None)
            }
        };
        drop(request);
        if era != Some(ServerEra::Stateless) {
            self.keep_for_next_session(&process);
        }
        response
    }

    /// Sends a request without a session. Starts a process if none runs.
    async fn begin_stateless(
        &self,
        sender: Sender,
        message: &Message<'_>,
        id: &RequestId,
    ) -> Result<PendingRequest, Unavailable> {
        for _ in 0..MAX_ATTEMPTS {
            // `keep_for_next_session` takes the process away under the same lock.
            let begun = {
                let current = self.current();
                let process = current.process.as_ref().filter(|process| !process.is_gone());
                process.map(|process| process.begin_request(sender, message, id))
            };
            match begun {
                Some(Ok(request)) => return Ok(request),
                Some(Err(WriteError::Gone)) | None => {}
                Some(Err(error)) => return Err(Unavailable::temporary(error.to_string())),
            }
            self.running(&mut self.starts.lock().await.restart_backoff).await?;
        }
        Err(Unavailable::temporary(WriteError::Gone.to_string()))
    }

    /// Keeps the process for the next session, if it has received nothing but `server/discover`.
    fn keep_for_next_session(&self, process: &Arc<Process>) {
        let mut current = self.current();
        let is_current = current.process.as_ref().is_some_and(|current| Arc::ptr_eq(current, process));
        if self.pool.stdio.sharing == Sharing::PerSession
            && is_current
            && process.is_fresh()
            && self.pool.keep_spare(process)
        {
            current.process = None;
        }
    }
}
