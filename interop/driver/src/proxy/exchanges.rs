//! The record of all requests and responses of one run, the planned cuts, and the verdict on them.

use std::collections::{HashSet, VecDeque};

use serde_json::{Value, json};

use super::request::Request;
use super::response::Response;

/// Every exchange of one run, in order.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    all: Vec<Exchange>,
    /// The cuts that are still to be made: after how many events of the call's response, then of
    /// each response that resumes it.
    cuts: VecDeque<usize>,
    /// The first exchange that [`Self::verdict`] judges.
    planned_at: usize,
}

/// A request and the part of its response that has passed.
#[derive(Debug)]
struct Exchange {
    verb: String,
    session: Option<String>,
    last_event_id: Option<String>,
    /// The revision in the header of the request.
    revision: Option<String>,
    message: Value,
    cut_after: Option<usize>,
    was_cut: bool,
    response: Response,
    /// How many events were sent to the client.
    delivered: usize,
}

impl Exchanges {
    /// Plans to cut the connection of the next call after the first number of events, the
    /// connection that resumes it after the second number, and so on.
    pub(crate) fn plan_cuts(&mut self, cuts: impl IntoIterator<Item = usize>) {
        self.cuts = cuts.into_iter().collect();
        self.planned_at = self.all.len();
    }

    /// Records a request before it is passed on. Returns its number.
    pub(crate) fn record_request(&mut self, request: &Request) -> usize {
        let header = |name| request.header(name).map(str::to_owned);
        let mut exchange = Exchange {
            verb: request.verb().to_owned(),
            session: header("mcp-session-id"),
            last_event_id: header("last-event-id"),
            revision: header("mcp-protocol-version"),
            message: serde_json::from_slice(request.body()).unwrap_or_default(),
            cut_after: None,
            was_cut: false,
            response: Response::default(),
            delivered: 0,
        };
        if !self.cuts.is_empty() && self.is_to_be_cut(&exchange) {
            exchange.cut_after = self.cuts.front().copied();
        }
        self.all.push(exchange);
        self.all.len() - 1
    }

    /// Records a part of a response. Returns the number of bytes to pass on before the cut, if the
    /// connection must be cut.
    pub(crate) fn record_response(&mut self, number: usize, bytes: &[u8]) -> Option<usize> {
        let exchange = self.all.get_mut(number)?;
        let cut = exchange.response.read(bytes, exchange.cut_after)?;
        exchange.was_cut = true;
        self.cuts.pop_front();
        Some(cut)
    }

    /// Records that everything recorded so far was sent to the client.
    pub(crate) fn record_delivery(&mut self, number: usize) {
        if let Some(exchange) = self.all.get_mut(number) {
            exchange.delivered = exchange.response.events.len();
        }
    }

    /// Succeeds if the call after [`Self::plan_cuts`] was sent once, cut as planned, resumed from
    /// the event that was delivered last, and answered once.
    pub(crate) fn verdict(&self) -> Result<String, String> {
        let judged = &self.all[self.planned_at..];
        let calls: Vec<&Exchange> = judged.iter().filter(|exchange| exchange.is_call()).collect();
        let [call] = *calls else { return Err(format!("the call was sent {} times", calls.len())) };
        if !self.cuts.is_empty() {
            return Err(format!("{} cut(s) were not reached", self.cuts.len()));
        }
        let mut parts = vec![call];
        let resumes = |part: &Exchange, next: &Exchange| {
            next.last_event_id.is_some() && next.last_event_id.as_ref() == part.response.events.last()
        };
        while let Some(part) = parts.last().filter(|part| part.was_cut) {
            let next = judged.iter().rfind(|next| resumes(part, next));
            parts.push(next.ok_or_else(|| {
                format!("the client did not resume after {:?}", part.response.events.last())
            })?);
        }
        let events: Vec<&String> = parts.iter().flat_map(|part| &part.response.messages).collect();
        if events.iter().collect::<HashSet<_>>().len() != events.len() {
            return Err(format!("an event came twice: {events:?}"));
        }
        let answers = judged.iter().flat_map(|exchange| &exchange.response.answers);
        match answers.filter(|id| call.message.get("id") == Some(id)).count() {
            1 => {
                let cuts = judged.iter().filter(|exchange| exchange.was_cut).count();
                Ok(format!("{cuts} cut(s), {} events, one answer", events.len()))
            }
            count => Err(format!("{count} answers came")),
        }
    }

    /// Returns the last call, for SDKs that do not expose its id or its session.
    pub(crate) fn last_call(&self) -> Value {
        let Some(call) = self.all.iter().rfind(|exchange| exchange.is_call()) else {
            return Value::Null;
        };
        let id = call.message.get("id");
        let cancelled = self.all.iter().any(|exchange| {
            exchange.method() == Some("notifications/cancelled")
                && exchange.session == call.session
                && exchange.message.pointer("/params/requestId") == id
                && exchange.response.status == Some(202)
        });
        let deleted = self.all.iter().rfind(|exchange| {
            exchange.verb == "DELETE" && exchange.session.is_some() && exchange.session == call.session
        });
        json!({
            "session": call.session,
            "id": id,
            "cancelled": cancelled,
            "deleted": deleted.and_then(|exchange| exchange.response.status),
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the calls with this argument `key`.
    fn with_key(&self, key: &str) -> impl Iterator<Item = &Exchange> {
        self.all.iter().filter(move |exchange| {
            exchange.is_call()
                && exchange.message.pointer("/params/arguments/key").and_then(Value::as_str) == Some(key)
        })
    }

    /// Returns the revision of a call.
    pub(crate) fn revision(&self, key: &str) -> Option<String> {
        self.with_key(key).find_map(|call| call.revision.clone())
    }

    /// Returns true if the client has received an event id for a call, so that it can resume.
    pub(crate) fn is_resumable(&self, key: &str) -> bool {
        self.with_key(key).any(|call| call.delivered > 0)
    }

    /// Returns true if, among the exchanges from this number on, a client has resumed a stream or
    /// sent a call, and has received an event of the response.
    pub(crate) fn is_resumed_since(&self, number: usize) -> bool {
        self.all.iter().skip(number).any(|exchange| {
            (exchange.last_event_id.is_some() || exchange.is_call()) && exchange.delivered > 0
        })
    }

    /// Returns why a call got an error, as the gateway said it.
    pub(crate) fn reason(&self, key: &str) -> Option<String> {
        let ids: Vec<_> = self.with_key(key).filter_map(|call| call.message.get("id")).collect();
        let answers = |exchange: &Exchange| {
            exchange.response.answers.iter().any(|id| ids.contains(&id))
                || ids.iter().any(|id| exchange.message.get("id") == Some(id))
        };
        let mut reasons = self
            .all
            .iter()
            .filter(|exchange| answers(exchange))
            .flat_map(|exchange| exchange.response.reasons());
        reasons.next()
    }

    /// Describes every exchange in one line, for a person who looks for the cause of a fault.
    pub(crate) fn describe(&self) -> Vec<String> {
        self.all.iter().map(Exchange::describe).collect()
    }

    /// Returns true if the next planned cut concerns this exchange.
    fn is_to_be_cut(&self, exchange: &Exchange) -> bool {
        match self.all[self.planned_at..].iter().rfind(|earlier| earlier.was_cut) {
            None => exchange.is_call(),
            Some(cut) => {
                exchange.last_event_id.is_some()
                    && exchange.last_event_id.as_ref() == cut.response.events.last()
            }
        }
    }
}

impl Exchange {
    fn is_call(&self) -> bool {
        self.verb == "POST" && self.method() == Some("tools/call")
    }

    fn method(&self) -> Option<&str> {
        self.message.get("method").and_then(Value::as_str)
    }

    fn describe(&self) -> String {
        let message = [self.method(), self.message.pointer("/params/arguments/key").and_then(Value::as_str)];
        let message = message.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let id = self.message.get("id").map(|id| format!(" id {id}")).unwrap_or_default();
        let revision = self.revision.as_deref().unwrap_or("no revision");
        let session = if self.session.is_some() { "a session" } else { "no session" };
        let resumed = self.last_event_id.as_ref().map(|event| format!(" after {event}")).unwrap_or_default();
        let status = self.response.status.map_or_else(|| "no response".to_owned(), |code| code.to_string());
        let Response { events, answers, .. } = &self.response;
        let reasons = self.response.reasons().join(" ");
        format!(
            "{} {message}{id}{resumed} ({revision}, {session}): {status}, {} event id(s), {} answer(s) {reasons}",
            self.verb,
            events.len(),
            answers.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_was_cut_and_resumed_passes() {
        check(
            &[2, 1],
            &[call("0 1 2"), get("1", "2 3"), get("2", "3 7!")],
            "ok: 2 cut(s), 4 events, one answer",
        );
    }

    #[test]
    fn a_resumed_stream_may_repeat_its_position() {
        check(
            &[2, 1],
            &[call("0 1 2"), get("1", "1~ 2"), get("1", "1~ 2 7!")],
            "ok: 2 cut(s), 3 events, one answer",
        );
    }

    #[test]
    fn a_call_may_be_resumed_twice_from_one_event() {
        check(
            &[2, 1],
            &[call("0 1 2"), get("1", "2 3"), get("1", "2 7!")],
            "ok: 2 cut(s), 3 events, one answer",
        );
    }

    #[test]
    fn any_other_call_fails() {
        check(&[1], &[call("0"), call("0 7!")], "the call was sent 2 times");
        check(&[3], &[call("0 7!")], "1 cut(s) were not reached");
        check(&[1], &[call("0 1")], r#"the client did not resume after Some("0")"#);
        check(&[2], &[call("0 1 2"), get("0", "1 2 7!")], r#"the client did not resume after Some("1")"#);
        check(&[2], &[call("0 1 2"), get("1", "1 2 7!")], r#"an event came twice: ["1", "1", "2", "7"]"#);
        check(&[2], &[call("0 1 2"), get("1", "2")], "0 answers came");
        check(&[2], &[call("0 1 2"), get("1", "2 7!"), get("2", "8!")], "2 answers came");
    }

    #[test]
    fn the_last_call_is_known() {
        let mut exchanges = Exchanges::default();
        assert_eq!(exchanges.last_call(), Value::Null);
        pass(&mut exchanges, &[call("0 7!")]);
        let expect = json!({"session": "s", "id": 5, "cancelled": false, "deleted": null});
        assert_eq!(exchanges.last_call(), expect);
        let body = r#"{"method":"notifications/cancelled","params":{"requestId":5}}"#;
        pass(&mut exchanges, &[(request("POST", "", body), "HTTP/1.1 202 Accepted\r\n\r\n".to_owned())]);
        pass(&mut exchanges, &[(request("DELETE", "", ""), "HTTP/1.1 204 No Content\r\n\r\n".to_owned())]);
        let expect = json!({"session": "s", "id": 5, "cancelled": true, "deleted": 204});
        assert_eq!(exchanges.last_call(), expect);
    }

    fn check(cuts: &[usize], passed: &[(String, String)], expect: &str) {
        let mut exchanges = Exchanges::default();
        exchanges.plan_cuts(cuts.iter().copied());
        pass(&mut exchanges, passed);
        let got = exchanges.verdict().map(|text| format!("ok: {text}"));
        assert_eq!(got.unwrap_or_else(|text| text), expect);
    }

    fn pass(record: &mut Exchanges, exchanges: &[(String, String)]) {
        for (request, response) in exchanges {
            let request = Request::read(&mut request.as_bytes(), &mut Vec::new()).unwrap().unwrap();
            let number = record.record_request(&request);
            record.record_response(number, response.as_bytes());
        }
    }

    fn call(events: &str) -> (String, String) {
        (request("POST", "", r#"{"method":"tools/call","id":5}"#), response(events))
    }

    fn get(after: &str, events: &str) -> (String, String) {
        (request("GET", &format!("Last-Event-ID: {after}\r\n"), ""), response(events))
    }

    fn request(verb: &str, headers: &str, body: &str) -> String {
        format!(
            "{verb} /mcp HTTP/1.1\r\nMcp-Session-Id: s\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    /// Events by their ids. An event with a `!` contains the response, number 0 and events with a
    /// `~` have no data.
    fn response(events: &str) -> String {
        let event = |id: &str| match id.strip_suffix('!') {
            Some(id) => format!("id: {id}\ndata: {{\"id\":5,\"result\":{{}}}}\n\n"),
            None if id == "0" || id.ends_with('~') => format!("id: {}\ndata: \n\n", id.trim_end_matches('~')),
            None => format!("id: {id}\ndata: {{}}\n\n"),
        };
        "HTTP/1.1 200 OK\r\n\r\n".to_owned() + &events.split(' ').map(event).collect::<String>()
    }
}
