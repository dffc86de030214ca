//! Results of type `input_required`: parses the requests for input, and collects the handler's
//! answers for the next round.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use steadfast_wire::{RawObject, RequestId};
use tokio::task::JoinSet;

use super::tool_annotations::ToolAnnotations;
use crate::error::Error;
use crate::handler::ServerRequest;
use crate::server_requests;
use crate::shared::Shared;

/// Methods whose results may request input.
const INPUT_METHODS: &[&str] = &["tools/call", "prompts/get", "resources/read"];

/// What a result means for its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResultKind {
    /// The result ends the call.
    Final,
    InputRequired(InputRequests),
}

/// What the server needs before it continues a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InputRequests {
    /// The JSON text of each request, by key.
    requests: Option<RawObject>,
    /// The JSON text of the request state, which only the server interprets.
    state: Option<String>,
}

/// The members of a result that determine its kind.
#[derive(Deserialize)]
struct ResultHead<'a> {
    #[serde(borrow, rename = "resultType")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, rename = "inputRequests")]
    requests: Option<&'a RawValue>,
    #[serde(borrow, rename = "requestState")]
    state: Option<&'a RawValue>,
}

impl ResultKind {
    pub(super) fn of(method: &str, result: &Bytes, tools: &ToolAnnotations) -> Result<Self, Error> {
        let bad = |what: &str| Error::BadAnswer(what.to_owned());
        // Checked first, because serde accepts a JSON array as a struct.
        let head = Some(result).filter(|result| result.starts_with(b"{"));
        let head = head.and_then(|result| serde_json::from_slice::<ResultHead<'_>>(result).ok());
        let Some(head) = head else { return Err(bad("the result is not an object")) };
        let kind = match head.kind.map(RawValue::get).map(serde_json::from_str::<String>) {
            // A server that implements a draft of the revision sends no `resultType`.
            None => return Ok(Self::Final),
            Some(kind) => kind.map_err(|_| bad("the resultType is not a string"))?,
        };
        if tools.accepts_result_type(&kind) {
            return Ok(Self::Final);
        }
        if kind != "input_required" {
            return Err(Error::UnknownResultType(kind));
        }
        if !INPUT_METHODS.contains(&method) {
            return Err(Error::BadAnswer(format!("the result of {method} must not request input")));
        }
        let requests = head.requests.map(RawValue::get).map(RawObject::parse).transpose();
        let requests = requests.map_err(|_| bad("the inputRequests of the result is not an object"))?;
        let state = head.state.map(|state| state.get().to_owned());
        if requests.is_none() && state.is_none() {
            return Err(bad("the result requests input without inputRequests or requestState"));
        }
        Ok(Self::InputRequired(InputRequests { requests, state }))
    }
}

impl InputRequests {
    /// Returns true if the server sent no `inputRequests`: it only wants the client to retry.
    pub(super) fn has_no_requests(&self) -> bool {
        self.requests.is_none()
    }

    /// Has the handler answer all requests, at most
    /// [`Limits::server_requests`](crate::Limits::server_requests) at a time. Returns `params`, the
    /// parameters of the call's first request, with the answers and the request state added.
    pub(super) async fn answer_all(
        self,
        shared: &Arc<Shared>,
        call: &RequestId,
        mut params: RawObject,
    ) -> Result<RawObject, Error> {
        if let Some(requests) = &self.requests {
            let answers = collect_answers(shared, call, requests).await?;
            params.set("inputResponses", &answers.to_string());
        }
        if let Some(state) = &self.state {
            params.set("requestState", state);
        }
        Ok(params)
    }
}

async fn collect_answers(
    shared: &Arc<Shared>,
    call: &RequestId,
    requests: &RawObject,
) -> Result<RawObject, Error> {
    // Dropping the set aborts all tasks.
    let mut tasks = JoinSet::new();
    let mut answers = Vec::new();
    for (index, (key, request)) in requests.iter().enumerate() {
        let bad = || Error::BadAnswer(format!("the input {key:?} is not a valid request"));
        let server_request = parse_request(request, call).ok_or_else(bad)?;
        answers.push((key.to_owned(), String::new()));
        // Waits for a permit before each task, so that the requests start in their order.
        let (permit, handler) = (shared.server_requests.acquire_permit().await, Arc::clone(&shared.handler));
        tasks.spawn(async move {
            let answer = server_requests::answer(handler, server_request).await;
            drop(permit);
            (index, answer)
        });
    }
    while let Some(done) = tasks.join_next().await {
        // The task itself does not panic: `server_requests::answer` catches panics of the handler.
        let Ok((index, answer)) = done else { continue };
        let (key, text) = &mut answers[index];
        match answer {
            Ok(result) => *text = String::from_utf8_lossy(&result).into_owned(),
            Err(error) => return Err(Error::InputRefused { key: key.clone(), message: error.message }),
        }
    }
    Ok(RawObject::from_members(answers))
}

fn parse_request(request: &str, call: &RequestId) -> Option<ServerRequest> {
    #[derive(Deserialize)]
    struct Request<'a> {
        method: String,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let request: Request<'_> = serde_json::from_str(request).ok()?;
    let params = request.params.map(|params| Bytes::copy_from_slice(params.get().as_bytes()));
    Some(ServerRequest { method: request.method, params, call: Some(call.clone()) })
}
