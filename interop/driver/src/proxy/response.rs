//! Reads a response while it passes: its status, the ids of its events, the JSON-RPC responses.

use serde_json::Value;

#[derive(Debug, Default)]
pub(super) struct Response {
    pub(super) status: Option<u16>,
    /// Ids of complete events, in order.
    pub(super) events: Vec<String>,
    /// Ids of the events that carry data. An event without data only tells the client its position;
    /// a resumed stream repeats the position.
    pub(super) messages: Vec<String>,
    /// The JSON-RPC id of each JSON-RPC response.
    pub(super) answers: Vec<Value>,
    /// The `data.reason` of each JSON-RPC error among the events.
    reasons: Vec<String>,
    in_body: bool,
    line: Vec<u8>,
    event: Option<String>,
    has_data: bool,
}

impl Response {
    /// Reads bytes up to the end of event number `until`, or all of them. Returns the number of
    /// bytes up to the end of that event if the bytes contain it.
    pub(super) fn read(&mut self, bytes: &[u8], until: Option<usize>) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned();
            let events = self.events.len();
            self.read_line(&line);
            if self.events.len() > events && until == Some(self.events.len()) {
                return Some(at + 1);
            }
        }
        None
    }

    /// Returns the `data.reason` of each JSON-RPC error. A body that is JSON instead of events has
    /// one line, without an end.
    pub(super) fn reasons(&self) -> Vec<String> {
        let body = serde_json::from_slice::<Value>(&self.line).ok();
        self.reasons.iter().cloned().chain(body.as_ref().and_then(reason)).collect()
    }

    /// The lines that separate the chunks of a body match none of the patterns here.
    fn read_line(&mut self, line: &str) {
        match line.split_once(':') {
            _ if !self.in_body => {
                if self.status.is_none() {
                    self.status = line.split_ascii_whitespace().nth(1).and_then(|code| code.parse().ok());
                }
                self.in_body = line.is_empty();
            }
            Some(("id", id)) => self.event = Some(id.trim().to_owned()),
            Some(("data", data)) => self.read_data(data),
            _ if line.is_empty() => {
                let (id, has_data) = (self.event.take(), std::mem::take(&mut self.has_data));
                self.messages.extend(id.clone().filter(|_| has_data));
                self.events.extend(id);
            }
            _ => {}
        }
    }

    fn read_data(&mut self, data: &str) {
        self.has_data |= !data.trim().is_empty();
        let Ok(message) = serde_json::from_str::<Value>(data) else { return };
        if message.get("method").is_none()
            && let Some(id) = message.get("id")
        {
            self.answers.push(id.clone());
            self.reasons.extend(reason(&message));
        }
    }
}

fn reason(message: &Value) -> Option<String> {
    message.pointer("/error/data/reason").and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_found_in_events_and_in_json() {
        let error = r#"{"id":1,"error":{"code":-32603,"message":"","data":{"reason":"deadline"}}}"#;
        for body in [format!("id: 1\ndata: {error}\n\n"), error.to_owned()] {
            let mut response = Response::default();
            response.read(format!("HTTP/1.1 200 OK\r\n\r\n{body}").as_bytes(), None);
            assert_eq!(response.reasons(), ["deadline"]);
        }
    }

    const RESPONSE: &str = "HTTP/1.1 200 OK\r\nid: no\r\n\r\n1a\r\nid: 1-0\nretry: 9\ndata: \n\n\r\n2b\r\n\
        id: 1-1\ndata: {\"method\":\"m\",\"id\":8}\n\n\r\n: hm\n\nid: 1-2\ndata: {\"id\":7,\"result\":{}}\n\n";

    #[test]
    fn events_and_answers_are_found_in_any_split_of_the_bytes() {
        for size in [1, 2, 7, 1000] {
            let mut response = Response::default();
            for bytes in RESPONSE.as_bytes().chunks(size) {
                assert_eq!(response.read(bytes, None), None);
            }
            assert_eq!((response.status, &*response.answers), (Some(200), &[Value::from(7)][..]));
            assert_eq!(response.events, ["1-0", "1-1", "1-2"]);
            assert_eq!(response.messages, ["1-1", "1-2"]);
        }
    }

    #[test]
    fn a_cut_is_directly_after_its_event() {
        for (until, end) in [(1, "data: \n\n"), (2, "8}\n\n"), (3, "{}}\n\n")] {
            let at = Response::default().read(RESPONSE.as_bytes(), Some(until)).unwrap();
            assert!(RESPONSE[..at].ends_with(end), "{until}");
        }
        assert_eq!(Response::default().read(RESPONSE.as_bytes(), Some(4)), None);
    }
}
