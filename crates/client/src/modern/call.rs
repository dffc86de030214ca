//! A stateless call: as many requests as it takes until it has a final answer.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use steadfast_wire::rpc::{ErrorObject, HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION, json_string};
use steadfast_wire::sse::Kind;
use steadfast_wire::{MessageKind, RequestId, Revision};

use super::head;
use super::inputs::Outcome;
use super::tools::Tools;
use crate::errand::Job;
use crate::error::Error;
use crate::incoming::{End, Incoming, Stream};
use crate::link::unanswered;
use crate::message::{self, Answer};
use crate::owner::Notification;
use crate::shared::Shared;
use steadfast_wire::members::Members;

const LIST_TOOLS: &str = "tools/list";
const CALL_TOOL: &str = "tools/call";

/// Runs a call to its final answer. Dropped, it closes the stream, which cancels the call.
pub(crate) async fn call(shared: &Arc<Shared>, tools: &Tools, job: &Job) -> Result<Answer, Error> {
    let run = Run { shared, tools, job };
    let first = head::with_meta(&shared.link, job.params_with_token());
    let mut params = first.clone();
    let mut id = job.id.clone();
    let limit = shared.link.limits.rounds;
    for round in 0..=limit {
        let result = match run.attempt(&mut id, &params).await? {
            Answer::Result(result) => result,
            error @ Answer::Error(_) => return Ok(error),
        };
        let wanted = match Outcome::of(&job.method, &result, tools)? {
            Outcome::InputRequired(wanted) => wanted,
            Outcome::Final if job.method == LIST_TOOLS => {
                return Ok(Answer::Result(tools.learn(result).text));
            }
            Outcome::Final => return Ok(Answer::Result(result)),
        };
        if round == limit {
            break;
        }
        if wanted.is_nothing() {
            // It sheds load.
            tokio::time::sleep(shared.link.backoff.wait(round as u32 + 1)).await;
        }
        params = wanted.fulfil(shared, &job.id, first.clone()).await?;
        id = shared.link.next_id();
    }
    Err(Error::TooManyRounds { limit })
}

/// Sends a notification. The revision has none of its own for clients over HTTP; extensions may.
pub(crate) async fn notify(shared: &Shared, method: &str, params: Option<Members>) -> Result<(), Error> {
    let params = head::with_meta(&shared.link, params);
    let headers = head::headers(method, &params, &[])?;
    let text = message::notification(method, Some(&params.to_string()));
    match shared.link.control(headers, text).await? {
        (_, Incoming::Refusal { status, body, challenge }) => Err(Error::refused(status, &body, challenge)),
        _ => Ok(()),
    }
}

struct Run<'a> {
    shared: &'a Arc<Shared>,
    tools: &'a Tools,
    job: &'a Job,
}

impl Run<'_> {
    /// One round: a request, and again if the server shows how to do it right.
    async fn attempt(&self, id: &mut RequestId, params: &Members) -> Result<Answer, Error> {
        let method = &self.job.method;
        let (mut mended_headers, mut mended_version) = (false, false);
        loop {
            let tool = if method == CALL_TOOL { params.text("name") } else { None };
            let annotations = match &tool {
                Some(tool) => self
                    .tools
                    .annotations(tool)
                    .map_err(|reason| Error::UnusableTool { tool: tool.clone(), reason })?,
                None => Vec::new(),
            };
            let headers = head::headers(method, params, &annotations)?;
            let text = message::request(id, method, Some(&params.to_string()));
            let answer = self.exchange(id, headers, text).await?;
            match (answer.code().and_then(|code| i32::try_from(code).ok()), &tool) {
                (Some(HEADER_MISMATCH), Some(tool)) if !mended_headers => {
                    mended_headers = true;
                    self.learn(tool).await?;
                }
                (Some(UNSUPPORTED_PROTOCOL_VERSION), _) if !mended_version && supports_ours(&answer) => {
                    mended_version = true;
                }
                _ => return Ok(answer),
            }
            *id = self.shared.link.next_id();
        }
    }

    /// Reads the list of tools until it has told of this one.
    async fn learn(&self, tool: &str) -> Result<(), Error> {
        let mut cursor: Option<String> = None;
        for _ in 0..self.shared.link.limits.pages {
            let mut params = Members::default();
            if let Some(cursor) = &cursor {
                params.set("cursor", &json_string(cursor));
            }
            let params = head::with_meta(&self.shared.link, Some(params));
            let id = self.shared.link.next_id();
            let headers = head::headers(LIST_TOOLS, &params, &[])?;
            let text = message::request(&id, LIST_TOOLS, Some(&params.to_string()));
            let Answer::Result(result) = self.exchange(&id, headers, text).await? else { return Ok(()) };
            let page = self.tools.learn(result);
            if page.names.iter().any(|name| name == tool) || page.next.is_none() {
                return Ok(());
            }
            cursor = page.next;
        }
        Ok(())
    }

    /// Sends one request and reads to its answer.
    async fn exchange(&self, id: &RequestId, headers: http::HeaderMap, text: Bytes) -> Result<Answer, Error> {
        let link = &self.shared.link;
        let response = link.call(headers, text).await?;
        match Incoming::read(response, &link.limits).await? {
            Incoming::Whole(body) if body.trim_ascii().is_empty() => Err(unanswered()),
            Incoming::Whole(body) => self.messages(id, &body).await?.ok_or_else(unanswered),
            Incoming::Stream(stream) => self.follow(id, stream).await,
            Incoming::Refusal { status, body, challenge } => {
                let list = link.messages(&body, Revision::V2026_07_28).unwrap_or_default();
                let answer = list.iter().find_map(|message| message.refusal_of(id));
                answer.ok_or_else(|| Error::refused(status, &body, challenge))
            }
        }
    }

    async fn follow(&self, id: &RequestId, mut stream: Stream) -> Result<Answer, Error> {
        loop {
            let event = match stream.next().await {
                Ok(event) if event.kind != Kind::Message || event.data.is_empty() => continue,
                Ok(event) => event,
                Err(End::Over(why)) => return Err(Error::OutcomeUnknown { why: why.to_string() }),
                Err(End::TooMuch(error)) => return Err(Error::BadAnswer(error.to_string())),
            };
            if let Some(answer) = self.messages(id, &event.data).await? {
                stream.let_go();
                return Ok(answer);
            }
        }
    }

    async fn messages(&self, id: &RequestId, bytes: &Bytes) -> Result<Option<Answer>, Error> {
        for message in self.shared.link.messages(bytes, Revision::V2026_07_28)? {
            if let Some(answer) = message.answer_to(id) {
                return Ok(Some(answer));
            }
            match message.kind {
                MessageKind::Notification => {
                    let notification = Notification { method: message.method, params: message.params };
                    self.job.listener.hear(notification).await;
                }
                MessageKind::Request(_) => {
                    let what =
                        format!("it asks for {}, which {} has not", message.method, Revision::V2026_07_28);
                    return Err(Error::BadAnswer(what));
                }
                // There is no session that the calls of this client could share, so no call of ours waits for it.
                MessageKind::Response(other) => {
                    let id = other.map(|id| id.to_string());
                    tracing::debug!(id, "the server sent an answer to another request; dropped");
                }
            }
        }
        Ok(None)
    }
}

/// Whether a server that refuses our revision names it among its own.
fn supports_ours(answer: &Answer) -> bool {
    supported_in(answer).iter().any(|version| version == Revision::V2026_07_28.as_str())
}

/// The revisions that a refusal names.
pub(crate) fn supported_in(answer: &Answer) -> Vec<String> {
    match answer {
        Answer::Result(_) => Vec::new(),
        Answer::Error(text) => ErrorObject::parse(text).map(|error| supported(&error)).unwrap_or_default(),
    }
}

/// The revisions that an error names.
pub(crate) fn supported(error: &ErrorObject) -> Vec<String> {
    #[derive(Deserialize)]
    struct Data {
        supported: Vec<String>,
    }
    let data = error.data.as_deref().and_then(|data| serde_json::from_str::<Data>(data).ok());
    data.map(|data| data.supported).unwrap_or_default()
}
