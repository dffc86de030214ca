//! The `tools/call` that the load generator repeats, and the check of its response.

use memchr::memmem;

use super::response::Response;
use super::target::Target;

/// The digits of an id. All ids have this length, so a request differs from the last one in these
/// digits only.
const DIGITS: usize = 12;
const FIRST_ID: u64 = 100_000_000_000;
/// The number of ids of one connection, far more than it sends.
const IDS_PER_CONNECTION: u64 = 100_000_000;
const RESULT: &[u8] = b"\"result\":";

pub(super) const MOST_CONNECTIONS: usize = ((FIRST_ID * 9) / IDS_PER_CONNECTION) as usize;

/// The kind of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way<'a> {
    InSession(&'a str),
    /// With everything that 2026-07-28 requires.
    Stateless,
    /// The response is constant.
    Constant,
}

#[derive(Debug)]
pub(super) struct Call {
    request: Vec<u8>,
    id_at: usize,
    next_id: u64,
    /// Whether the response must have the id of the call. A constant response has not.
    checks_id: bool,
    /// The positions of id and result in the last response. They are nearly always the same.
    answer_id_at: usize,
    answer_result_at: usize,
}

impl Call {
    /// Returns a call with ids that no other connection uses.
    pub(super) fn new(target: &Target, way: Way<'_>, tool: &str, connection: usize) -> Self {
        let next_id = FIRST_ID + connection as u64 * IDS_PER_CONNECTION;
        let head = r#"{"jsonrpc":"2.0","id":"#;
        let meta = match way {
            Way::Stateless => concat!(
                r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
                r#""io.modelcontextprotocol/clientCapabilities":{}}"#
            ),
            Way::InSession(_) | Way::Constant => "",
        };
        let tail = format!(r#","method":"tools/call","params":{{"name":"{tool}","arguments":{{}}{meta}}}}}"#);
        let body = format!("{head}{next_id}{tail}");
        let request = match way {
            Way::InSession(session) => target.post(Some(session), &body),
            Way::Constant => target.post(None, &body),
            Way::Stateless => target.post_stateless(tool, &body),
        };
        let id_at = request.len() - tail.len() - DIGITS;
        let checks_id = !matches!(way, Way::Constant);
        Self { request, id_at, next_id, checks_id, answer_id_at: 0, answer_result_at: 0 }
    }

    /// Returns the bytes of the next call.
    pub(super) fn next(&mut self) -> &[u8] {
        let mut rest = self.next_id;
        for digit in self.request[self.id_at..self.id_at + DIGITS].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.next_id += 1;
        &self.request
    }

    /// Returns true if `response` contains the result of the last call.
    pub(super) fn is_answered_by(&mut self, response: &Response) -> bool {
        let body = response.body();
        response.status() == 200 && self.has_result(body) && (!self.checks_id || self.has_id(body))
    }

    fn has_result(&mut self, body: &[u8]) -> bool {
        if body.get(self.answer_result_at..).is_some_and(|rest| rest.starts_with(RESULT)) {
            return true;
        }
        let Some(at) = memmem::find(body, RESULT) else { return false };
        self.answer_result_at = at;
        true
    }

    fn has_id(&mut self, body: &[u8]) -> bool {
        let id = &self.request[self.id_at..self.id_at + DIGITS];
        let is_id = |at: usize| {
            body.get(at..at + DIGITS) == Some(id)
                && body[..at].trim_ascii_end().ends_with(b"\"id\":")
                && !body.get(at + DIGITS).is_some_and(u8::is_ascii_digit)
        };
        if is_id(self.answer_id_at) {
            return true;
        }
        let Some(at) = memmem::find_iter(body, id).find(|&at| is_id(at)) else { return false };
        self.answer_id_at = at;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, Response, Target, Way};

    fn answer(body: &str) -> Response {
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let mut response = Response::new();
        response.spare()[..text.len()].copy_from_slice(text.as_bytes());
        assert!(response.filled(text.len()).unwrap());
        response
    }

    #[test]
    fn counts_its_ids_up_in_place() {
        let target = Target::parse("http://127.0.0.1:1/mcp").unwrap();
        for way in [Way::InSession("s"), Way::Stateless, Way::Constant] {
            let mut call = Call::new(&target, way, "tiny", 3);
            for id in ["100300000000", "100300000001"] {
                let sent = String::from_utf8(call.next().to_vec()).unwrap();
                assert!(sent.contains(&format!(r#""id":{id},"method":"tools/call""#)), "{sent}");
                let body = &sent[sent.find("\r\n\r\n").unwrap() + 4..];
                assert!(sent.contains(&format!("Content-Length: {}\r\n", body.len())), "{sent}");
            }
        }
    }

    #[test]
    fn accepts_only_its_own_result() {
        let target = Target::parse("http://127.0.0.1:1/mcp").unwrap();
        let mut call = Call::new(&target, Way::InSession("s"), "tiny", 0);
        call.next();
        for (body, expected) in [
            (r#"{"jsonrpc":"2.0","id":100000000000,"result":{}}"#, true),
            (r#"{"jsonrpc":"2.0","result":{},"id": 100000000000}"#, true),
            (r#"{"jsonrpc":"2.0","id":100000000001,"result":{}}"#, false),
            (r#"{"jsonrpc":"2.0","id":1000000000000,"result":{}}"#, false),
            (r#"{"jsonrpc":"2.0","id":100000000000,"error":{}}"#, false),
            ("data: {\"id\":7,\"x\":100000000000}\n\ndata: {\"id\":100000000000,\"result\":{}}\n\n", true),
        ] {
            assert_eq!(call.is_answered_by(&answer(body)), expected, "{body}");
        }
    }
}
