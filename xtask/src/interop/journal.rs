//! What passed through the proxy, which connections are to be cut, and what to think of the result.

use std::collections::{HashSet, VecDeque};

use serde_json::{Value, json};

use super::http::Request;
use super::scan::Scan;

/// Every exchange of one run, in order.
#[derive(Debug, Default)]
pub(super) struct Journal {
    exchanges: Vec<Exchange>,
    /// Cuts to come: after how many events, first of the call's own response, then of each that resumes it.
    cuts: VecDeque<usize>,
    /// Where the story begins that [`Self::verdict`] judges.
    armed_at: usize,
}

/// A request and what is known of its response.
#[derive(Debug)]
struct Exchange {
    verb: String,
    session: Option<String>,
    last_event_id: Option<String>,
    message: Value,
    cut_after: Option<usize>,
    was_cut: bool,
    response: Scan,
}

impl Journal {
    /// Cuts the next call's connection after the first number of events, and the one that resumes it after the
    /// second, and so on.
    pub(super) fn arm(&mut self, cuts: impl IntoIterator<Item = usize>) {
        self.cuts = cuts.into_iter().collect();
        self.armed_at = self.exchanges.len();
    }

    /// Notes a request before it is passed on; gives its number.
    pub(super) fn begin(&mut self, request: &Request) -> usize {
        let header = |name| request.header(name).map(str::to_owned);
        let mut exchange = Exchange {
            verb: request.verb().to_owned(),
            session: header("mcp-session-id"),
            last_event_id: header("last-event-id"),
            message: serde_json::from_slice(request.body()).unwrap_or_default(),
            cut_after: None,
            was_cut: false,
            response: Scan::default(),
        };
        if !self.cuts.is_empty() && self.is_next_leg(&exchange) {
            exchange.cut_after = self.cuts.front().copied();
        }
        self.exchanges.push(exchange);
        self.exchanges.len() - 1
    }

    /// Notes a part of a response. `Some` says how much of it to pass on before cutting the connection.
    pub(super) fn receive(&mut self, number: usize, bytes: &[u8]) -> Option<usize> {
        let exchange = self.exchanges.get_mut(number)?;
        let cut = exchange.response.feed(bytes, exchange.cut_after)?;
        exchange.was_cut = true;
        self.cuts.pop_front();
        Some(cut)
    }

    /// Whether the call since [`Self::arm`] was cut as planned, resumed where it was cut, and answered once.
    pub(super) fn verdict(&self) -> Result<String, String> {
        let story = &self.exchanges[self.armed_at..];
        let calls: Vec<&Exchange> = story.iter().filter(|exchange| exchange.is_call()).collect();
        let [call] = *calls else { return Err(format!("the call was sent {} times", calls.len())) };
        if !self.cuts.is_empty() {
            return Err(format!("{} cut(s) were not reached", self.cuts.len()));
        }
        let mut legs = vec![call];
        let resumes = |leg: &Exchange, next: &Exchange| {
            next.last_event_id.is_some() && next.last_event_id.as_ref() == leg.response.events.last()
        };
        while let Some(leg) = legs.last().filter(|leg| leg.was_cut) {
            let next = story.iter().rfind(|next| resumes(leg, next));
            legs.push(next.ok_or_else(|| format!("nobody resumed after {:?}", leg.response.events.last()))?);
        }
        let events: Vec<&String> = legs.iter().flat_map(|leg| &leg.response.messages).collect();
        if events.iter().collect::<HashSet<_>>().len() != events.len() {
            return Err(format!("an event came twice: {events:?}"));
        }
        let answers = story.iter().flat_map(|exchange| &exchange.response.answers);
        match answers.filter(|id| call.message.get("id") == Some(id)).count() {
            1 => {
                let cuts = story.iter().filter(|exchange| exchange.was_cut).count();
                Ok(format!("{cuts} cut(s), {} events, one answer", events.len()))
            }
            count => Err(format!("{count} answers came")),
        }
    }

    /// The last call, for SDKs that do not tell its id or its session, and what became of it.
    pub(super) fn last_call(&self) -> Value {
        let Some(call) = self.exchanges.iter().rfind(|exchange| exchange.is_call()) else {
            return Value::Null;
        };
        let id = call.message.get("id");
        let cancelled = self.exchanges.iter().any(|exchange| {
            exchange.method() == Some("notifications/cancelled")
                && exchange.session == call.session
                && exchange.message.pointer("/params/requestId") == id
                && exchange.response.status == Some(202)
        });
        let deleted = self.exchanges.iter().rfind(|exchange| {
            exchange.verb == "DELETE" && exchange.session.is_some() && exchange.session == call.session
        });
        json!({
            "session": call.session,
            "id": id,
            "cancelled": cancelled,
            "deleted": deleted.and_then(|exchange| exchange.response.status),
        })
    }

    /// Whether an exchange belongs to the story of the armed call and is the one to be cut next.
    fn is_next_leg(&self, exchange: &Exchange) -> bool {
        match self.exchanges[self.armed_at..].iter().rfind(|earlier| earlier.was_cut) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_was_cut_and_resumed_is_fine() {
        check(
            &[2, 1],
            &[call("0 1 2"), get("1", "2 3"), get("2", "3 7!")],
            "ok: 2 cut(s), 4 events, one answer",
        );
    }

    #[test]
    fn so_is_one_that_was_told_where_it_is_and_cut_again() {
        check(
            &[2, 1],
            &[call("0 1 2"), get("1", "1~ 2"), get("1", "1~ 2 7!")],
            "ok: 2 cut(s), 3 events, one answer",
        );
    }

    #[test]
    fn so_is_one_that_was_resumed_from_the_same_event_again() {
        check(
            &[2, 1],
            &[call("0 1 2"), get("1", "2 3"), get("1", "2 7!")],
            "ok: 2 cut(s), 3 events, one answer",
        );
    }

    #[test]
    fn anything_else_is_not() {
        check(&[1], &[call("0"), call("0 7!")], "the call was sent 2 times");
        check(&[3], &[call("0 7!")], "1 cut(s) were not reached");
        check(&[1], &[call("0 1")], r#"nobody resumed after Some("0")"#);
        check(&[2], &[call("0 1 2"), get("0", "1 2 7!")], r#"nobody resumed after Some("1")"#);
        check(&[2], &[call("0 1 2"), get("1", "1 2 7!")], r#"an event came twice: ["1", "1", "2", "7"]"#);
        check(&[2], &[call("0 1 2"), get("1", "2")], "0 answers came");
        check(&[2], &[call("0 1 2"), get("1", "2 7!"), get("2", "8!")], "2 answers came");
    }

    #[test]
    fn the_last_call_is_known() {
        let mut journal = Journal::default();
        assert_eq!(journal.last_call(), Value::Null);
        play(&mut journal, &[call("0 7!")]);
        let expect = json!({"session": "s", "id": 5, "cancelled": false, "deleted": null});
        assert_eq!(journal.last_call(), expect);
        let body = r#"{"method":"notifications/cancelled","params":{"requestId":5}}"#;
        play(&mut journal, &[(request("POST", "", body), "HTTP/1.1 202 Accepted\r\n\r\n".to_owned())]);
        play(&mut journal, &[(request("DELETE", "", ""), "HTTP/1.1 204 No Content\r\n\r\n".to_owned())]);
        let expect = json!({"session": "s", "id": 5, "cancelled": true, "deleted": 204});
        assert_eq!(journal.last_call(), expect);
    }

    fn check(cuts: &[usize], exchanges: &[(String, String)], expect: &str) {
        let mut journal = Journal::default();
        journal.arm(cuts.iter().copied());
        play(&mut journal, exchanges);
        let got = journal.verdict().map(|text| format!("ok: {text}"));
        assert_eq!(got.unwrap_or_else(|text| text), expect);
    }

    fn play(journal: &mut Journal, exchanges: &[(String, String)]) {
        for (request, response) in exchanges {
            let request = Request::read(&mut request.as_bytes(), &mut Vec::new()).unwrap().unwrap();
            let number = journal.begin(&request);
            journal.receive(number, response.as_bytes());
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

    /// Events by their ids; one with a `!` has the answer, number 0 and those with a `~` have no data.
    fn response(events: &str) -> String {
        let event = |id: &str| match id.strip_suffix('!') {
            Some(id) => format!("id: {id}\ndata: {{\"id\":5,\"result\":{{}}}}\n\n"),
            None if id == "0" || id.ends_with('~') => format!("id: {}\ndata: \n\n", id.trim_end_matches('~')),
            None => format!("id: {id}\ndata: {{}}\n\n"),
        };
        "HTTP/1.1 200 OK\r\n\r\n".to_owned() + &events.split(' ').map(event).collect::<String>()
    }
}
