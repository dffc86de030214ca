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
use crate::members::Members;
use crate::owner::Ask;
use crate::shared::Shared;

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

impl Outcome {
    pub(super) fn of(method: &str, result: &Bytes, tools: &Tools) -> Result<Self, Error> {
        let bad = |what: &str| Error::BadAnswer(what.to_owned());
        let members = std::str::from_utf8(result).ok().and_then(|text| Members::parse(text).ok());
        let Some(members) = members else { return Err(bad("its result is no object")) };
        let kind = match members.get("resultType") {
            // A server of before the final revision.
            None => return Ok(Self::Final),
            Some(_) => members.text("resultType").ok_or_else(|| bad("its resultType is no text"))?,
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
        let requests = members.get("inputRequests").map(Members::parse).transpose();
        let requests = requests.map_err(|_| bad("its inputRequests are no object"))?;
        let state = members.get("requestState").map(str::to_owned);
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
    let mut answers = Members::default();
    for (key, request) in requests.iter() {
        // The answers are in the order of the requests, whichever is there first.
        answers.set(key, "null");
        let ask = read(request, call)
            .ok_or_else(|| Error::BadAnswer(format!("the input {key:?} is no request")))?;
        // In the order of the requests, and only as many as there is room for: each holds its permit to the end.
        let permit = shared.asks.room().await;
        let (owner, key) = (Arc::clone(&shared.owner), key.to_owned());
        asks.spawn(async move {
            let answer = asks::answer(owner, ask).await;
            drop(permit);
            (key, answer)
        });
    }
    while let Some(done) = asks.join_next().await {
        // The task itself does not panic: whatever the owner does is caught below it.
        let Ok((key, answer)) = done else { continue };
        match answer {
            Ok(result) => answers.set(&key, &String::from_utf8_lossy(&result)),
            Err(error) => return Err(Error::InputRefused { key, message: error.message }),
        }
    }
    Ok(answers)
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
