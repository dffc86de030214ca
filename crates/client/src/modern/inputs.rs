//! Results that ask for input: what they want, and the request that brings it.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use steadfast_wire::RequestId;
use tokio::task::JoinSet;

use super::tools::Tools;
use crate::asks;
use crate::error::Error;
use crate::owner::Ask;
use crate::shared::Shared;
use steadfast_wire::members::Members;

/// Methods whose results may ask for input.
const MAY_ASK: &[&str] = &["tools/call", "prompts/get", "resources/read"];

/// What a result is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Final,
    InputRequired(Wanted),
}

/// What the server wants before it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// By key, the JSON text of each request.
    requests: Option<Members>,
    /// The JSON text of the state, which is the server's alone.
    state: Option<String>,
}

/// The members of a result that decide.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, rename = "resultType")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, rename = "inputRequests")]
    requests: Option<&'a RawValue>,
    #[serde(borrow, rename = "requestState")]
    state: Option<&'a RawValue>,
}

impl Outcome {
    pub(super) fn of(method: &str, result: &Bytes, tools: &Tools) -> Result<Self, Error> {
        let bad = |what: &str| Error::BadAnswer(what.to_owned());
        // serde takes a list for a struct, item by item.
        let head = Some(result).filter(|result| result.starts_with(b"{"));
        let head = head.and_then(|result| serde_json::from_slice::<Head<'_>>(result).ok());
        let Some(head) = head else { return Err(bad("its result is no object")) };
        let kind = match head.kind.map(RawValue::get).map(serde_json::from_str::<String>) {
            // A server of before the final revision.
            None => return Ok(Self::Final),
            Some(kind) => kind.map_err(|_| bad("its resultType is no text"))?,
        };
        if tools.takes(&kind) {
            return Ok(Self::Final);
        }
        if kind != "input_required" {
            return Err(Error::UnknownResultType(kind));
        }
        if !MAY_ASK.contains(&method) {
            return Err(bad("a method that may not ask for input does"));
        }
        let requests = head.requests.map(RawValue::get).map(Members::parse).transpose();
        let requests = requests.map_err(|_| bad("its inputRequests are no object"))?;
        let state = head.state.map(|state| state.get().to_owned());
        if requests.is_none() && state.is_none() {
            return Err(bad("it asks for input and does not say which"));
        }
        Ok(Self::InputRequired(Wanted { requests, state }))
    }
}

impl Wanted {
    /// Whether the server only wants to be asked again.
    pub(super) fn is_nothing(&self) -> bool {
        self.requests.is_none()
    }

    /// Has the owner answer all requests, side by side as far as there is room, and adds what it says to the parameters
    /// of the first attempt.
    pub(super) async fn fulfil(
        self,
        shared: &Arc<Shared>,
        call: &RequestId,
        mut params: Members,
    ) -> Result<Members, Error> {
        if let Some(requests) = &self.requests {
            let answers = gather(shared, call, requests).await?;
            params.set("inputResponses", &answers.to_string());
        }
        if let Some(state) = &self.state {
            params.set("requestState", state);
        }
        Ok(params)
    }
}

async fn gather(shared: &Arc<Shared>, call: &RequestId, requests: &Members) -> Result<Members, Error> {
    // Dropped, it ends all of them.
    let mut asks = JoinSet::new();
    let mut answers = Vec::new();
    for (at, (key, request)) in requests.iter().enumerate() {
        let bad = || Error::BadAnswer(format!("the input {key:?} is no request"));
        let ask = read(request, call).ok_or_else(bad)?;
        answers.push((key.to_owned(), String::new()));
        // In the order of the requests, and only as many as there is room for: each holds its permit to the end.
        let (permit, owner) = (shared.asks.room().await, Arc::clone(&shared.owner));
        asks.spawn(async move {
            let answer = asks::answer(owner, ask).await;
            drop(permit);
            (at, answer)
        });
    }
    while let Some(done) = asks.join_next().await {
        // The task itself does not panic: whatever the owner does is caught below it.
        let Ok((at, answer)) = done else { continue };
        let (key, text) = &mut answers[at];
        match answer {
            Ok(result) => *text = String::from_utf8_lossy(&result).into_owned(),
            Err(error) => return Err(Error::InputRefused { key: key.clone(), message: error.message }),
        }
    }
    Ok(Members::of(answers))
}

fn read(request: &str, call: &RequestId) -> Option<Ask> {
    #[derive(Deserialize)]
    struct Request<'a> {
        method: String,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let request: Request<'_> = serde_json::from_str(request).ok()?;
    let params = request.params.map(|params| Bytes::copy_from_slice(params.get().as_bytes()));
    Some(Ask { method: request.method, params, call: Some(call.clone()) })
}
