//! Runs a stateless call: as many requests as necessary until the server gives a final answer.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use steadfast_wire::rpc::{ErrorObject, HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION, json_string};
use steadfast_wire::sse::Kind;
use steadfast_wire::{MessageKind, RequestId, Revision};

use super::input_required::ResultKind;
use super::request_head;
use super::tool_annotations::ToolAnnotations;
use crate::call::CallSpec;
use crate::error::Error;
use crate::handler::Notification;
use crate::peer::{Answer, EventStream, ServerResponse, StreamEnd, message, no_answer_in_response};
use crate::shared::Shared;
use steadfast_wire::RawObject;

const LIST_TOOLS: &str = "tools/list";
const CALL_TOOL: &str = "tools/call";

/// Runs a call and returns its final answer. Dropping the future closes the stream, which cancels
/// the call.
pub(crate) async fn call(
    shared: &Arc<Shared>,
    tools: &ToolAnnotations,
    spec: &CallSpec,
) -> Result<Answer, Error> {
    let running = RunningCall { shared, tools, spec };
    let first = request_head::with_meta(&shared.peer, spec.params_with_token());
    let mut params = first.clone();
    let mut id = spec.id.clone();
    let limit = shared.peer.limits.rounds;
    for round in 0..=limit {
        let result = match running.attempt(&mut id, &params).await? {
            Answer::Result(result) => result,
            error @ Answer::Error(_) => return Ok(error),
        };
        let input = match ResultKind::of(&spec.method, &result, tools)? {
            ResultKind::InputRequired(input) => input,
            ResultKind::Final if spec.method == LIST_TOOLS => {
                return Ok(Answer::Result(tools.record_page(result).text));
            }
            ResultKind::Final => return Ok(Answer::Result(result)),
        };
        if round == limit {
            break;
        }
        if input.has_no_requests() {
            // The server requests no input, only a retry: it sheds load.
            tokio::time::sleep(shared.peer.backoff.wait(round as u32 + 1)).await;
        }
        params = input.answer_all(shared, &spec.id, first.clone()).await?;
        id = shared.peer.next_id();
    }
    Err(Error::TooManyRounds { limit })
}

/// Sends a notification. The revision defines no client notifications over HTTP, but extensions
/// may.
pub(crate) async fn notify(shared: &Shared, method: &str, params: Option<RawObject>) -> Result<(), Error> {
    let params = request_head::with_meta(&shared.peer, params);
    let headers = request_head::headers(method, &params, &[])?;
    let text = message::notification(method, Some(&params.to_string()));
    match shared.peer.control(headers, text).await? {
        (_, ServerResponse::Refusal { status, body, challenge }) => {
            Err(Error::refused(status, &body, challenge))
        }
        _ => Ok(()),
    }
}

struct RunningCall<'a> {
    shared: &'a Arc<Shared>,
    tools: &'a ToolAnnotations,
    spec: &'a CallSpec,
}

impl RunningCall<'_> {
    /// Runs one round: sends the request, and sends it again if the server's error says how to
    /// correct it.
    async fn attempt(&self, id: &mut RequestId, params: &RawObject) -> Result<Answer, Error> {
        let method = &self.spec.method;
        let (mut retried_headers, mut retried_version) = (false, false);
        loop {
            let tool = if method == CALL_TOOL { params.text("name") } else { None };
            let annotations = match &tool {
                Some(tool) => self
                    .tools
                    .annotations(tool)
                    .map_err(|reason| Error::UnusableTool { tool: tool.clone(), reason })?,
                None => Vec::new(),
            };
            let headers = request_head::headers(method, params, &annotations)?;
            let text = message::request(id, method, Some(&params.to_string()));
            let answer = self.send_request(id, headers, text).await?;
            match (answer.code().and_then(|code| i32::try_from(code).ok()), &tool) {
                (Some(HEADER_MISMATCH), Some(tool)) if !retried_headers => {
                    retried_headers = true;
                    self.fetch_annotations(tool).await?;
                }
                (Some(UNSUPPORTED_PROTOCOL_VERSION), _) if !retried_version && supports_ours(&answer) => {
                    retried_version = true;
                }
                _ => return Ok(answer),
            }
            *id = self.shared.peer.next_id();
        }
    }

    /// Reads pages of `tools/list` until one contains this tool, and caches the annotations.
    async fn fetch_annotations(&self, tool: &str) -> Result<(), Error> {
        let mut cursor: Option<String> = None;
        for _ in 0..self.shared.peer.limits.pages {
            let mut params = RawObject::default();
            if let Some(cursor) = &cursor {
                params.set("cursor", &json_string(cursor));
            }
            let params = request_head::with_meta(&self.shared.peer, Some(params));
            let id = self.shared.peer.next_id();
            let headers = request_head::headers(LIST_TOOLS, &params, &[])?;
            let text = message::request(&id, LIST_TOOLS, Some(&params.to_string()));
            let Answer::Result(result) = self.send_request(&id, headers, text).await? else { return Ok(()) };
            let page = self.tools.record_page(result);
            if page.names.iter().any(|name| name == tool) || page.next.is_none() {
                return Ok(());
            }
            cursor = page.next;
        }
        Ok(())
    }

    /// Sends one request and reads the response up to its answer.
    async fn send_request(
        &self,
        id: &RequestId,
        headers: http::HeaderMap,
        text: Bytes,
    ) -> Result<Answer, Error> {
        let peer = &self.shared.peer;
        let response = peer.call(headers, text).await?;
        match ServerResponse::read(response, &peer.limits).await? {
            ServerResponse::Complete(body) if body.trim_ascii().is_empty() => Err(no_answer_in_response()),
            ServerResponse::Complete(body) => {
                self.messages(id, &body).await?.ok_or_else(no_answer_in_response)
            }
            ServerResponse::Stream(stream) => self.follow_stream(id, stream).await,
            ServerResponse::Refusal { status, body, challenge } => {
                let list = peer.messages(&body, Revision::V2026_07_28).unwrap_or_default();
                let answer = list.iter().find_map(|message| message.error_for(id));
                answer.ok_or_else(|| Error::refused(status, &body, challenge))
            }
        }
    }

    async fn follow_stream(&self, id: &RequestId, mut stream: EventStream) -> Result<Answer, Error> {
        loop {
            let event = match stream.next().await {
                Ok(event) if event.kind != Kind::Message || event.data.is_empty() => continue,
                Ok(event) => event,
                Err(StreamEnd::Closed(why)) => return Err(Error::OutcomeUnknown { why: why.to_string() }),
                Err(StreamEnd::OverLimit(error)) => return Err(Error::BadAnswer(error.to_string())),
            };
            if let Some(answer) = self.messages(id, &event.data).await? {
                stream.drain_in_background();
                return Ok(answer);
            }
        }
    }

    /// Passes the messages of a body or an event to the observer. Returns the answer to the request
    /// `id` if it is among them.
    async fn messages(&self, id: &RequestId, bytes: &Bytes) -> Result<Option<Answer>, Error> {
        for message in self.shared.peer.messages(bytes, Revision::V2026_07_28)? {
            if let Some(answer) = message.answer_to(id) {
                return Ok(Some(answer));
            }
            match message.kind {
                MessageKind::Notification => {
                    let notification = Notification { method: message.method, params: message.params };
                    self.spec.observer.on_notification(notification).await;
                }
                MessageKind::Request(_) => {
                    let what = format!(
                        "the server sent the request {}, which {} does not have",
                        message.method,
                        Revision::V2026_07_28
                    );
                    return Err(Error::BadAnswer(what));
                }
                // Stateless calls share no session, so no other call of this client waits for the
                // answer.
                MessageKind::Response(other) => {
                    let id = other.map(|id| id.to_string());
                    tracing::debug!(id, "the server sent an answer to another request; dropped");
                }
            }
        }
        Ok(None)
    }
}

/// Returns true if a server that refuses our revision lists it as supported.
fn supports_ours(answer: &Answer) -> bool {
    supported_in(answer).iter().any(|version| version == Revision::V2026_07_28.as_str())
}

/// The supported revisions that an answer lists.
pub(crate) fn supported_in(answer: &Answer) -> Vec<String> {
    match answer {
        Answer::Result(_) => Vec::new(),
        Answer::Error(text) => ErrorObject::parse(text).map(|error| supported(&error)).unwrap_or_default(),
    }
}

/// The supported revisions that an error lists.
pub(crate) fn supported(error: &ErrorObject) -> Vec<String> {
    #[derive(Deserialize)]
    struct Data {
        supported: Vec<String>,
    }
    let data = error.data.as_deref().and_then(|data| serde_json::from_str::<Data>(data).ok());
    data.map(|data| data.supported).unwrap_or_default()
}
