//! [`InputRequests`]: lets a handler request input from the client (elicitation, sampling, roots)
//! in every revision of the protocol.
#![expect(
    deprecated,
    reason = "sampling and roots are deprecated from 2026-07-28 on; every revision still has them"
)]

use std::future::poll_fn;
use std::task::Poll;

use rmcp::ErrorData;
use rmcp::model::{
    self, CallToolRequestParams, CreateMessageRequest, CreateMessageRequestParams, ElicitRequest,
    ElicitRequestParams, GetPromptRequestParams, InputRequest, InputRequiredResult, InputResponses,
    ListRootsRequest, ProtocolVersion, ReadResourceRequestParams, ServerRequest,
};
use rmcp::service::{RequestContext, RoleServer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::capability_check;

/// The input that a handler needs from the client before it can answer: forms for the user
/// (elicitation), messages of the client's model (sampling), or the client's roots.
///
/// Up to revision 2025-11-25 the server sends all requests concurrently and waits for the answers.
/// From 2026-07-28 on it answers that input is required, and the client sends its request again
/// with the answers. A handler that uses this type supports both. In 2026-07-28 the handler runs
/// from its start once per round.
#[derive(Clone, Debug, Default)]
pub struct InputRequests {
    requests: model::InputRequests,
    /// The `requestState` for the next round.
    state: Option<String>,
}

/// Result of [`InputRequests::answers`].
#[derive(Clone, Debug)]
#[must_use]
pub enum Answers {
    /// The client has answered every request. Maps the name of each request to the JSON of its
    /// result.
    All(InputResponses),
    /// The client must send its request again, with the answers. The handler returns this result.
    NotYet(InputRequiredResult),
}

/// Parameters of a request that can carry the client's answers to input requests.
pub trait AcceptsInput {
    /// Returns the client's answers, by the names of the input requests.
    fn input_responses(&self) -> Option<&InputResponses>;

    /// Returns the `requestState` that the client sent back, decrypted.
    fn request_state(&self) -> Option<&str>;
}

impl InputRequests {
    /// Returns an empty set of requests.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a request. The answer has this name in [`Answers::All`].
    pub fn request(mut self, name: impl Into<String>, request: InputRequest) -> Self {
        self.requests.insert(name.into(), request);
        self
    }

    /// Adds an elicitation: the user fills in a form, or visits a URL.
    pub fn form(self, name: impl Into<String>, form: ElicitRequestParams) -> Self {
        self.request(name, InputRequest::Elicitation(ElicitRequest::new(form)))
    }

    /// Adds a sampling request: the client's model writes a message.
    pub fn sample(self, name: impl Into<String>, sample: CreateMessageRequestParams) -> Self {
        self.request(name, InputRequest::CreateMessage(CreateMessageRequest::new(sample)))
    }

    /// Adds a request for the client's roots.
    pub fn roots(self, name: impl Into<String>) -> Self {
        self.request(name, InputRequest::ListRoots(ListRootsRequest::default()))
    }

    /// Attaches `state` to the requests. The client sends it back with the answers, and
    /// [`InputRequests::recall`] returns it in the next round. The client cannot read or change it.
    ///
    /// Fails if `state` does not serialise to JSON.
    pub fn remember(mut self, state: &impl Serialize) -> Result<Self, ErrorData> {
        let text = serde_json::to_string(state);
        self.state = Some(text.map_err(|error| ErrorData::internal_error(error.to_string(), None))?);
        Ok(self)
    }

    /// Returns the state that [`InputRequests::remember`] attached in the previous round, or `None`
    /// in the first round. Fails if the state is not of the type `T`.
    pub fn recall<T: DeserializeOwned>(request: &impl AcceptsInput) -> Result<Option<T>, ErrorData> {
        let Some(state) = request.request_state() else { return Ok(None) };
        serde_json::from_str(state).map(Some).map_err(|_| {
            ErrorData::invalid_params("`requestState` does not have the form that this tool expects", None)
        })
    }

    /// Returns the client's answers, or the result with which the client must be asked.
    ///
    /// In a session this function sends the requests and waits for all answers, so it returns
    /// [`Answers::All`]. In a stateless request it looks for the answers in `request`.
    ///
    /// Fails if the client has not declared a capability that a request needs, and in a session
    /// also if a request fails.
    pub async fn answers(
        self,
        request: &impl AcceptsInput,
        context: &RequestContext<RoleServer>,
    ) -> Result<Answers, ErrorData> {
        capability_check::check(self.requests.values(), &context.client_capabilities().unwrap_or_default())?;
        if is_stateless(context) {
            Ok(self.find_in(request))
        } else {
            self.send_all(context).await.map(Answers::All)
        }
    }

    /// Looks for the answers in a stateless request. If one is missing, or the state that was
    /// attached, the client is asked for everything again.
    fn find_in(self, request: &impl AcceptsInput) -> Answers {
        let given = request.input_responses();
        let answer =
            |name: &String| given.and_then(|given| given.get(name)).filter(|answer| answer.is_object());
        let has_state = self.state.is_none() || request.request_state().is_some();
        let found: Option<InputResponses> =
            self.requests.keys().map(|name| Some((name.clone(), answer(name)?.clone()))).collect();
        match found {
            Some(answers) if has_state => Answers::All(answers),
            _ => Answers::NotYet(InputRequiredResult::new(Some(self.requests), self.state)),
        }
    }

    /// Sends all requests concurrently. Fails with the first error; the requests that are still
    /// open are withdrawn when the call ends.
    async fn send_all(self, context: &RequestContext<RoleServer>) -> Result<InputResponses, ErrorData> {
        let send = |(name, request)| Box::pin(send_one(context, name, request));
        let mut waiting: Vec<_> = self.requests.into_iter().map(send).collect();
        let mut answers = InputResponses::new();
        poll_fn(|task| {
            let mut failed = None;
            waiting.retain_mut(|request| match request.as_mut().poll(task) {
                Poll::Ready(Ok((name, answer))) => {
                    answers.insert(name, answer);
                    false
                }
                Poll::Ready(Err(error)) => {
                    failed = Some(error);
                    false
                }
                Poll::Pending => true,
            });
            match failed {
                Some(error) => Poll::Ready(Err(error)),
                None if waiting.is_empty() => Poll::Ready(Ok(())),
                None => Poll::Pending,
            }
        })
        .await?;
        Ok(answers)
    }
}

async fn send_one(
    context: &RequestContext<RoleServer>,
    name: String,
    request: InputRequest,
) -> Result<(String, Value), ErrorData> {
    let request = match request {
        InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
        InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
        InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
        _ => {
            return Err(ErrorData::internal_error(
                "this kind of input request needs revision 2026-07-28",
                None,
            ));
        }
    };
    let failed = |why: String| ErrorData::internal_error(format!("{name:?} was not answered: {why}"), None);
    let answer = context.peer.send_request(request).await.map_err(|error| failed(error.to_string()))?;
    let answer = serde_json::to_value(answer).map_err(|error| failed(error.to_string()))?;
    Ok((name, answer))
}

/// Returns true if the request belongs to a revision without sessions.
fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    let revision = context.protocol_version();
    revision.is_some_and(|revision| revision.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

macro_rules! accepts_input {
    ($($params:ty),*) => {$(
        impl AcceptsInput for $params {
            fn input_responses(&self) -> Option<&InputResponses> {
                self.input_responses.as_ref()
            }

            fn request_state(&self) -> Option<&str> {
                self.request_state.as_deref()
            }
        }
    )*};
}

accepts_input!(CallToolRequestParams, GetPromptRequestParams, ReadResourceRequestParams);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn requests() -> InputRequests {
        InputRequests::new().roots("roots").sample("sample", CreateMessageRequestParams::new(Vec::new(), 1))
    }

    fn repeated(answers: Value, state: Option<&str>) -> CallToolRequestParams {
        let mut params = CallToolRequestParams::new("tool");
        params.input_responses = serde_json::from_value(answers).unwrap();
        params.request_state = state.map(str::to_owned);
        params
    }

    /// `expect` has the names of the answers, or as an error the names of the requests.
    fn check(requests: InputRequests, answers: Value, state: Option<&str>, expect: Result<&[&str], &[&str]>) {
        let got = match requests.find_in(&repeated(answers.clone(), state)) {
            Answers::All(answers) => Ok(answers.into_keys().collect::<Vec<_>>()),
            Answers::NotYet(result) => Err(result.input_requests.unwrap().into_keys().collect::<Vec<_>>()),
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(got, expect.map(names).map_err(names), "{answers} {state:?}");
    }

    #[test]
    fn missing_answers_or_state_repeat_all_requests() {
        let all = &["roots", "sample"][..];
        check(requests(), json!(null), None, Err(all));
        check(requests(), json!({"roots": {}}), None, Err(all));
        check(requests(), json!({"roots": {}, "sample": 7}), None, Err(all));
        check(requests(), json!({"roots": {}, "sample": {}, "more": {}}), None, Ok(all));
        let remembering = || requests().remember(&7).unwrap();
        check(remembering(), json!({"roots": {}, "sample": {}}), None, Err(all));
        check(remembering(), json!({"roots": {}, "sample": {}}), Some("7"), Ok(all));
    }

    #[test]
    fn recall_returns_what_remember_attached() {
        let Answers::NotYet(result) =
            requests().remember(&vec![1, 2]).unwrap().find_in(&repeated(json!({}), None))
        else {
            panic!("the request has no answers");
        };
        let state = result.request_state;
        assert_eq!(InputRequests::recall(&repeated(json!({}), state.as_deref())), Ok(Some(vec![1, 2])));
        assert_eq!(InputRequests::recall::<u8>(&repeated(json!({}), None)), Ok(None));
        assert_eq!(
            InputRequests::recall::<u8>(&repeated(json!({}), state.as_deref())).unwrap_err().code.0,
            -32602
        );
    }

    #[test]
    fn requests_need_declared_capabilities() {
        let only = |client: Value| {
            let client = serde_json::from_value(client).unwrap();
            capability_check::check(requests().requests.values(), &client)
                .map_err(|error| (error.code.0, error.data.unwrap()))
        };
        assert_eq!(only(json!({"roots": {}, "sampling": {}})), Ok(()));
        let missing = |what| Err((-32021, json!({"requiredCapabilities": what})));
        assert_eq!(only(json!({"roots": {}})), missing(json!({"sampling": {}})));
        assert_eq!(only(json!({"elicitation": {}})), missing(json!({"roots": {}, "sampling": {}})));
    }
}
