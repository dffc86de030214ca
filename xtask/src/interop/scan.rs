//! Reads a response as it passes: its status, the ids of its events, the answers in them.

use serde_json::Value;

/// Where a response was cut, or may be.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) status: Option<u16>,
    /// Ids of complete events, in order.
    pub(super) events: Vec<String>,
    /// Ids of those that carry data. The others say where the client is, and a resumed stream repeats that.
    pub(super) messages: Vec<String>,
    /// The JSON-RPC id of each answer.
    pub(super) answers: Vec<Value>,
    in_body: bool,
    line: Vec<u8>,
    event: Option<String>,
    has_data: bool,
}

impl Scan {
    /// Takes in bytes up to the end of event number `until`, or all of them. Gives how many if that event ended.
    pub(super) fn feed(&mut self, bytes: &[u8], until: Option<usize>) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned();
            let events = self.events.len();
            self.take_line(&line);
            if self.events.len() > events && until == Some(self.events.len()) {
                return Some(at + 1);
            }
        }
        None
    }

    /// The lines between the chunks of a body look like nothing that is looked for here.
    fn take_line(&mut self, line: &str) {
        match line.split_once(':') {
            _ if !self.in_body => {
                if self.status.is_none() {
                    self.status = line.split_ascii_whitespace().nth(1).and_then(|code| code.parse().ok());
                }
                self.in_body = line.is_empty();
            }
            Some(("id", id)) => self.event = Some(id.trim().to_owned()),
            Some(("data", data)) => self.take_data(data),
            _ if line.is_empty() => {
                let (id, has_data) = (self.event.take(), std::mem::take(&mut self.has_data));
                self.messages.extend(id.clone().filter(|_| has_data));
                self.events.extend(id);
            }
            _ => {}
        }
    }

    fn take_data(&mut self, data: &str) {
        self.has_data |= !data.trim().is_empty();
        let Ok(message) = serde_json::from_str::<Value>(data) else { return };
        if message.get("method").is_none()
            && let Some(id) = message.get("id")
        {
            self.answers.push(id.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: &str = "HTTP/1.1 200 OK\r\nid: no\r\n\r\n1a\r\nid: 1-0\nretry: 9\ndata: \n\n\r\n2b\r\n\
        id: 1-1\ndata: {\"method\":\"m\",\"id\":8}\n\n\r\n: hm\n\nid: 1-2\ndata: {\"id\":7,\"result\":{}}\n\n";

    #[test]
    fn events_and_answers_are_seen_however_the_bytes_come() {
        for size in [1, 2, 7, 1000] {
            let mut scan = Scan::default();
            for bytes in RESPONSE.as_bytes().chunks(size) {
                assert_eq!(scan.feed(bytes, None), None);
            }
            assert_eq!((scan.status, &*scan.answers), (Some(200), &[Value::from(7)][..]));
            assert_eq!(scan.events, ["1-0", "1-1", "1-2"]);
            assert_eq!(scan.messages, ["1-1", "1-2"]);
        }
    }

    #[test]
    fn a_cut_is_right_behind_its_event() {
        for (until, end) in [(1, "data: \n\n"), (2, "8}\n\n"), (3, "{}}\n\n")] {
            let at = Scan::default().feed(RESPONSE.as_bytes(), Some(until)).unwrap();
            assert!(RESPONSE[..at].ends_with(end), "{until}");
        }
        assert_eq!(Scan::default().feed(RESPONSE.as_bytes(), Some(4)), None);
    }
}
