//! Asking the client, in either era.
#![expect(
    deprecated,
    reason = "sampling and roots are deprecated from 2026-07-28 on and alive in every revision"
)]

use std::future::poll_fn;
use std::task::Poll;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CreateMessageRequest, CreateMessageRequestParams, ElicitRequest,
    ElicitRequestParams, GetPromptRequestParams, InputRequest, InputRequests, InputRequiredResult,
    InputResponses, ListRootsRequest, ProtocolVersion, ReadResourceRequestParams, ServerRequest,
};
use rmcp::service::{RequestContext, RoleServer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::declared;

/// What a handler wants to know from the client before it can answer: forms for the user, samples of its model, its roots.
///
/// Up to 2025-11-25 a server sends requests of its own, all at once, and waits. From 2026-07-28 on it answers that input is
/// required, and the client repeats its request with the answers. A handler that asks through this works in either way; it
/// may run from its start once for each round.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    requests: InputRequests,
    state: Option<String>,
}

/// What has come of [`Questions`].
#[derive(Clone, Debug)]
#[must_use]
pub enum Answers {
    /// The results of all that was asked, as JSON, by the names that they were asked under.
    All(InputResponses),
    /// The client has to repeat its request. This is what to answer it with.
    NotYet(InputRequiredResult),
}

/// The parameters of a request that can be repeated with answers.
pub trait Repeatable {
    /// The answers that came with it.
    fn input_responses(&self) -> Option<&InputResponses>;

    /// What was to be remembered, and came back with it.
    fn request_state(&self) -> Option<&str>;
}

impl Questions {
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for something under a name.
    pub fn ask(mut self, name: impl Into<String>, request: InputRequest) -> Self {
        self.requests.insert(name.into(), request);
        self
    }

    /// Has the user fill in a form.
    pub fn form(self, name: impl Into<String>, form: ElicitRequestParams) -> Self {
        self.ask(name, InputRequest::Elicitation(ElicitRequest::new(form)))
    }

    /// Has the client's model write something.
    pub fn sample(self, name: impl Into<String>, sample: CreateMessageRequestParams) -> Self {
        self.ask(name, InputRequest::CreateMessage(CreateMessageRequest::new(sample)))
    }

    /// Asks for the client's roots.
    pub fn roots(self, name: impl Into<String>) -> Self {
        self.ask(name, InputRequest::ListRoots(ListRootsRequest::default()))
    }

    /// Hands something to the client that has to come back with the answers, for [`Questions::recall`].
    pub fn remember(mut self, state: &impl Serialize) -> Result<Self, ErrorData> {
        let text = serde_json::to_string(state);
        self.state = Some(text.map_err(|error| ErrorData::internal_error(error.to_string(), None))?);
        Ok(self)
    }

    /// What an earlier round had to remember, if this is a later one.
    pub fn recall<T: DeserializeOwned>(request: &impl Repeatable) -> Result<Option<T>, ErrorData> {
        let Some(state) = request.request_state() else { return Ok(None) };
        serde_json::from_str(state)
            .map(Some)
            .map_err(|_| ErrorData::invalid_params("`requestState` is not what this server has given", None))
    }

    /// Asks, or finds the answers in the request.
    pub async fn answers(
        self,
        request: &impl Repeatable,
        context: &RequestContext<RoleServer>,
    ) -> Result<Answers, ErrorData> {
        declared::check(self.requests.values(), &context.client_capabilities().unwrap_or_default())?;
        if is_stateless(context) {
            Ok(self.find_in(request))
        } else {
            self.ask_now(context).await.map(Answers::All)
        }
    }

    /// Whoever answers in part, or without what was to be remembered, is asked everything again.
    fn find_in(self, request: &impl Repeatable) -> Answers {
        let given = request.input_responses();
        let answer =
            |name: &String| given.and_then(|given| given.get(name)).filter(|answer| answer.is_object());
        let is_remembered = self.state.is_none() || request.request_state().is_some();
        let found: Option<InputResponses> =
            self.requests.keys().map(|name| Some((name.clone(), answer(name)?.clone()))).collect();
        match found {
            Some(answers) if is_remembered => Answers::All(answers),
            _ => Answers::NotYet(InputRequiredResult::new(Some(self.requests), self.state)),
        }
    }

    /// All at once. The first that fails fails them all; what is still open ends with the call.
    async fn ask_now(self, context: &RequestContext<RoleServer>) -> Result<InputResponses, ErrorData> {
        let ask = |(name, request)| Box::pin(ask_one(context, name, request));
        let mut waiting: Vec<_> = self.requests.into_iter().map(ask).collect();
        let mut answers = InputResponses::new();
        poll_fn(|task| {
            let mut failed = None;
            waiting.retain_mut(|ask| match ask.as_mut().poll(task) {
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

async fn ask_one(
    context: &RequestContext<RoleServer>,
    name: String,
    request: InputRequest,
) -> Result<(String, Value), ErrorData> {
    let request = match request {
        InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
        InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
        InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
        _ => return Err(ErrorData::internal_error("this cannot be asked before 2026-07-28", None)),
    };
    let failed = |why: String| ErrorData::internal_error(format!("{name:?} was not answered: {why}"), None);
    let answer = context.peer.send_request(request).await.map_err(|error| failed(error.to_string()))?;
    let answer = serde_json::to_value(answer).map_err(|error| failed(error.to_string()))?;
    Ok((name, answer))
}

/// Whether the request belongs to a revision without sessions.
fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    let revision = context.protocol_version();
    revision.is_some_and(|revision| revision.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

macro_rules! repeatable {
    ($($params:ty),*) => {$(
        impl Repeatable for $params {
            fn input_responses(&self) -> Option<&InputResponses> {
                self.input_responses.as_ref()
            }

            fn request_state(&self) -> Option<&str> {
                self.request_state.as_deref()
            }
        }
    )*};
}

repeatable!(CallToolRequestParams, GetPromptRequestParams, ReadResourceRequestParams);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn questions() -> Questions {
        Questions::new().roots("roots").sample("sample", CreateMessageRequestParams::new(Vec::new(), 1))
    }

    fn repeated(answers: Value, state: Option<&str>) -> CallToolRequestParams {
        let mut params = CallToolRequestParams::new("tool");
        params.input_responses = serde_json::from_value(answers).unwrap();
        params.request_state = state.map(str::to_owned);
        params
    }

    /// The names that were answered, or else those that are asked for.
    fn check(questions: Questions, answers: Value, state: Option<&str>, expect: Result<&[&str], &[&str]>) {
        let got = match questions.find_in(&repeated(answers.clone(), state)) {
            Answers::All(answers) => Ok(answers.into_keys().collect::<Vec<_>>()),
            Answers::NotYet(result) => Err(result.input_requests.unwrap().into_keys().collect::<Vec<_>>()),
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(got, expect.map(names).map_err(names), "{answers} {state:?}");
    }

    #[test]
    fn answers_are_found_or_asked_for_again() {
        let all = &["roots", "sample"][..];
        check(questions(), json!(null), None, Err(all));
        check(questions(), json!({"roots": {}}), None, Err(all));
        check(questions(), json!({"roots": {}, "sample": 7}), None, Err(all));
        check(questions(), json!({"roots": {}, "sample": {}, "more": {}}), None, Ok(all));
        let remembering = || questions().remember(&7).unwrap();
        check(remembering(), json!({"roots": {}, "sample": {}}), None, Err(all));
        check(remembering(), json!({"roots": {}, "sample": {}}), Some("7"), Ok(all));
    }

    #[test]
    fn what_is_remembered_comes_back() {
        let Answers::NotYet(result) =
            questions().remember(&vec![1, 2]).unwrap().find_in(&repeated(json!({}), None))
        else {
            panic!("nobody has answered");
        };
        let state = result.request_state;
        assert_eq!(Questions::recall(&repeated(json!({}), state.as_deref())), Ok(Some(vec![1, 2])));
        assert_eq!(Questions::recall::<u8>(&repeated(json!({}), None)), Ok(None));
        assert_eq!(
            Questions::recall::<u8>(&repeated(json!({}), state.as_deref())).unwrap_err().code.0,
            -32602
        );
    }

    #[test]
    fn what_the_client_cannot_do_is_not_asked() {
        let only = |client: Value| {
            let client = serde_json::from_value(client).unwrap();
            declared::check(questions().requests.values(), &client)
                .map_err(|error| (error.code.0, error.data.unwrap()))
        };
        assert_eq!(only(json!({"roots": {}, "sampling": {}})), Ok(()));
        let missing = |what| Err((-32021, json!({"requiredCapabilities": what})));
        assert_eq!(only(json!({"roots": {}})), missing(json!({"sampling": {}})));
        assert_eq!(only(json!({"elicitation": {}})), missing(json!({"roots": {}, "sampling": {}})));
    }
}
