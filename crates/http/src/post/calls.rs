//! POSTs with calls: starts the calls and turns the engine's cursor into an HTTP response.

use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use steadfast_engine::{
    BegunCalls, CallDriver, Cursor, CursorStatus, Duplicates, Event, IncomingMessage, LiveSession, Refusal,
    ResponseFormat,
};
use steadfast_wire::{Message, Reason};

use super::{BodyShape, Endpoint, ResponseBody, ResponseMode, json};
use crate::config::DuplicateIds;
use crate::quirks::{Effect, Quirk};
use crate::response::sse_body::StreamStart;

impl Endpoint {
    /// Begins the calls. Also returns the quirk because of which an id may be in flight twice.
    pub(super) async fn begin(
        &self,
        session: &Arc<LiveSession>,
        messages: &[Message<'_>],
        requests: &[IncomingMessage],
    ) -> Result<(BegunCalls, Option<&'static Quirk>), Refusal> {
        let begin = |duplicates| {
            let ids = messages.iter().filter_map(|request| request.id().cloned()).collect();
            let format = match self.config.response {
                ResponseMode::Json => ResponseFormat::Json,
                _ => ResponseFormat::EventStream,
            };
            self.engine.begin(session, ids, requests, format, duplicates)
        };
        let policy = self.config.duplicate_ids;
        let duplicates =
            if policy == DuplicateIds::Isolate { Duplicates::Isolate } else { Duplicates::Reject };
        // The client is looked up only after a refusal, because that parses its `initialize`.
        let quirk = match begin(duplicates).await {
            Err(Refusal::Duplicate(id)) if policy == DuplicateIds::ByClient => {
                let quirk = self.config.quirks.in_session(Effect::IsolateDuplicateIds, session.facts());
                quirk.ok_or(Refusal::Duplicate(id))?
            }
            begun => return begun.map(|begun| (begun, None)),
        };
        Ok((begin(Duplicates::Isolate).await?, Some(quirk)))
    }

    /// Starts the calls. Returns the cursor that reads their answers, and the calls that are not
    /// finished.
    pub(super) async fn run(
        &self,
        posted: BegunCalls,
        requests: Vec<IncomingMessage>,
    ) -> (Cursor, Vec<CallDriver>) {
        let mut rest = Vec::new();
        for (call, request) in posted.calls.into_iter().zip(requests) {
            rest.push(self.engine.run(call, request).await);
        }
        (posted.cursor, rest)
    }

    /// Builds the response in the configured mode.
    pub(super) async fn respond(
        &self,
        session: &LiveSession,
        (cursor, calls): (Cursor, Vec<CallDriver>),
        shape: BodyShape,
    ) -> Response<ResponseBody> {
        if self.config.response == ResponseMode::Stream {
            return self.stream(cursor, session, StreamStart::New(calls)).await;
        }
        drop(calls);
        match self.config.response {
            ResponseMode::Json => self.plain(cursor, shape).await,
            ResponseMode::Stream | ResponseMode::Adaptive => self.adaptive(cursor, session, shape).await,
        }
    }

    /// Waits for all answers and sends them as JSON.
    async fn plain(&self, mut cursor: Cursor, shape: BodyShape) -> Response<ResponseBody> {
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
            (false, CursorStatus::Ended) => json(as_json(events, shape)),
            // The client has cancelled its own call and does not wait for this response.
            (true, CursorStatus::Ended) => json(
                Reason::Cancelled.error_retryable(true, "The call was cancelled.").to_message(None).into(),
            ),
            (_, _) => {
                // The call was started, so a retry may execute it twice.
                let text = "The call was begun, and its answer could not be read.";
                let problem = Reason::OutcomeUnknown.error(text);
                let mut response = json(problem.to_message(None).into());
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response
            }
        }
    }

    /// Sends JSON if only answers exist and all of them are available, otherwise a stream.
    async fn adaptive(
        &self,
        mut cursor: Cursor,
        session: &LiveSession,
        shape: BodyShape,
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
            return json(as_json(events, shape));
        }
        cursor.rewind();
        self.stream(cursor, session, StreamStart::New(Vec::new())).await
    }
}

fn is_answer(payload: &Bytes) -> bool {
    std::str::from_utf8(payload)
        .ok()
        .and_then(|text| Message::parse(text).ok())
        .is_some_and(|m| m.is_response())
}

fn as_json(mut events: Vec<Event>, shape: BodyShape) -> Bytes {
    if shape == BodyShape::Single && events.len() == 1 {
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
