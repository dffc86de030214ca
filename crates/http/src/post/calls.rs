//! POSTs that carry requests: from the engine's cursor to the HTTP response.

use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use steadfast_engine::{Cursor, CursorStatus, Event, Incoming, LiveSession, Posted, Refusal, Unfinished};
use steadfast_wire::Message;
use steadfast_wire::rpc::ErrorObject;

use super::{Endpoint, ResponseBody, ResponseMode, json};
use crate::sse_body::Opening;

impl Endpoint {
    pub(super) async fn begin(
        &self,
        session: &Arc<LiveSession>,
        messages: &[Message<'_>],
        requests: &[Incoming],
    ) -> Result<Posted, Refusal> {
        let ids = messages.iter().filter_map(|request| request.id().cloned()).collect();
        let answer_only = self.config.response == ResponseMode::Json;
        self.engine.begin(session, ids, requests, answer_only).await
    }

    /// Starts the calls. What is given back reads their answers, and what is left of them.
    pub(super) async fn run(&self, posted: Posted, requests: Vec<Incoming>) -> (Cursor, Vec<Unfinished>) {
        let mut rest = Vec::new();
        for (call, request) in posted.calls.into_iter().zip(requests) {
            rest.push(self.engine.run(call, request).await);
        }
        (posted.cursor, rest)
    }

    /// Answers the POST.
    pub(super) async fn respond(
        &self,
        session: &LiveSession,
        (cursor, calls): (Cursor, Vec<Unfinished>),
        batch: bool,
    ) -> Response<ResponseBody> {
        if self.config.response == ResponseMode::Stream {
            return self.stream(cursor, session, Opening::Fresh(calls)).await;
        }
        drop(calls);
        match self.config.response {
            ResponseMode::Json => self.plain(cursor, batch).await,
            ResponseMode::Stream | ResponseMode::Adaptive => self.adaptive(cursor, session, batch).await,
        }
    }

    /// Waits for all answers and sends them as JSON.
    async fn plain(&self, mut cursor: Cursor, batch: bool) -> Response<ResponseBody> {
        let mut events = Vec::new();
        let last = std::future::poll_fn(|context| {
            loop {
                match std::task::ready!(cursor.poll_events(context, &mut events)) {
                    CursorStatus::Events { .. } => {}
                    status => return Poll::Ready(status),
                }
            }
        })
        .await;
        match (events.is_empty(), last) {
            (false, CursorStatus::Ended) => json(as_json(events, batch)),
            // The client has cancelled its own request and does not wait for this.
            (true, CursorStatus::Ended) => json(
                ErrorObject::internal("cancelled", "The call was cancelled.", true).to_message(None).into(),
            ),
            (_, _) => {
                // The call was begun, so whoever sends it again may have it done twice.
                let text = "The call was begun, and its answer could not be read.";
                let problem = ErrorObject::internal("outcome_unknown", text, false);
                let mut response = json(problem.to_message(None).into());
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response
            }
        }
    }

    /// JSON if there is nothing but the answers and they are there already; else a stream.
    async fn adaptive(
        &self,
        mut cursor: Cursor,
        session: &LiveSession,
        batch: bool,
    ) -> Response<ResponseBody> {
        let mut events = Vec::new();
        let mut ended = false;
        std::future::poll_fn(|context| {
            while let Poll::Ready(status) = cursor.poll_events(context, &mut events) {
                match status {
                    CursorStatus::Events { .. } => {}
                    status => {
                        ended = status == CursorStatus::Ended;
                        break;
                    }
                }
            }
            Poll::Ready(())
        })
        .await;
        let only_answers = events.iter().all(|event| is_answer(&event.payload));
        if ended && only_answers && !events.is_empty() {
            return json(as_json(events, batch));
        }
        cursor.rewind();
        self.stream(cursor, session, Opening::Fresh(Vec::new())).await
    }
}

fn is_answer(payload: &Bytes) -> bool {
    std::str::from_utf8(payload)
        .ok()
        .and_then(|text| Message::parse(text).ok())
        .is_some_and(|m| m.is_response())
}

fn as_json(mut events: Vec<Event>, batch: bool) -> Bytes {
    if !batch && events.len() == 1 {
        return events.remove(0).payload;
    }
    let mut array = BytesMut::from(&b"["[..]);
    for (i, event) in events.iter().enumerate() {
        if i > 0 {
            array.extend_from_slice(b",");
        }
        array.extend_from_slice(&event.payload);
    }
    array.extend_from_slice(b"]");
    array.freeze()
}
