//! Reads and checks a stream of events without keeping it.

use std::io::{Error, ErrorKind};

use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::body::{Body, wrong};

/// The size of one read of the socket.
const ROOM: usize = 256 << 10;

/// A response that is being read.
#[derive(Debug)]
pub(super) struct Events {
    socket: TcpStream,
    buffer: Vec<u8>,
    /// Bytes that are received and not decoded yet, because the rest is missing.
    input: Vec<u8>,
    /// Bytes of the body that are not decoded yet.
    text: Vec<u8>,
    body: Body,
    seen: Seen,
}

/// The part of a stream that has arrived: numbered messages, and the response that ends it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The id of the first event.
    pub(super) first_id: Option<String>,
    /// The number of the last event.
    pub(super) last: u64,
    pub(super) messages: u64,
    pub(super) answers: u64,
    /// Bytes of the messages and the response, without their framing.
    pub(super) payload: u64,
}

impl Events {
    /// Sends a request for the events after number `after`.
    pub(super) async fn send(mut socket: TcpStream, request: &[u8], after: u64) -> Result<Self, Error> {
        socket.write_all(request).await?;
        Ok(Self {
            socket,
            buffer: vec![0; ROOM],
            input: Vec::new(),
            text: Vec::new(),
            body: Body::Head,
            seen: Seen { last: after, ..Seen::default() },
        })
    }

    /// Waits for the first bytes of the body.
    pub(super) async fn first_byte(&mut self) -> Result<(), Error> {
        while self.text.is_empty() && self.seen.first_id.is_none() {
            self.read().await?;
        }
        Ok(())
    }

    /// Reads the whole response. A missing, doubled or disordered event is an error.
    pub(super) async fn finish(mut self) -> Result<Seen, Error> {
        while self.body != Body::Done {
            self.read().await?;
        }
        if self.text.is_empty() { Ok(self.seen) } else { Err(wrong("the stream ends within an event")) }
    }

    async fn read(&mut self) -> Result<(), Error> {
        let count = self.socket.read(&mut self.buffer).await?;
        if count == 0 {
            return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        // Usually all bytes are decoded at once, and none are left to be put in front.
        if self.input.is_empty() {
            let used = self.body.take(&self.buffer[..count], &mut self.text)?;
            self.input.extend_from_slice(&self.buffer[used..count]);
        } else {
            self.input.extend_from_slice(&self.buffer[..count]);
            let used = self.body.take(&self.input, &mut self.text)?;
            self.input.drain(..used);
        }
        let used = self.seen.take(&self.text)?;
        self.text.drain(..used);
        Ok(())
    }
}

impl Seen {
    /// Counts the complete events in `text` and returns their length.
    fn take(&mut self, text: &[u8]) -> Result<usize, Error> {
        let mut at = 0;
        while let Some(length) = memmem::find(&text[at..], b"\n\n") {
            self.event(&text[at..at + length])?;
            at += length + 2;
        }
        Ok(at)
    }

    fn event(&mut self, event: &[u8]) -> Result<(), Error> {
        let (mut id, mut data) = (None, None);
        for line in event.split(|byte| *byte == b'\n') {
            if let Some(value) = line.strip_prefix(b"id: ") {
                id = std::str::from_utf8(value).ok();
            } else if let Some(value) = line.strip_prefix(b"data: ") {
                data = Some(value);
            }
        }
        let Some(id) = id else { return Ok(()) };
        self.first_id.get_or_insert_with(|| id.to_owned());
        let number = id.split('-').nth(1).and_then(|digits| digits.parse().ok());
        let number: u64 = number.ok_or_else(|| wrong("an id without a number"))?;
        // The priming event is before all others and has no data.
        if number == 0 && self.last == 0 {
            return Ok(());
        }
        if number != self.last + 1 {
            return Err(wrong(&format!("event {number} after event {}", self.last)));
        }
        self.last = number;
        let data = data.ok_or_else(|| wrong("an event without data"))?;
        self.payload += data.len() as u64;
        match message_number(data) {
            Some(message) if message == number => self.messages += 1,
            Some(message) => return Err(wrong(&format!("message {message} in event {number}"))),
            None => self.answers += 1,
        }
        Ok(())
    }
}

/// Returns the number at the start of the text of a progress message, or `None` for a response.
fn message_number(data: &[u8]) -> Option<u64> {
    const TEXT: &[u8] = b"\"message\":\"";
    // The number is near the start, so the long part is not searched.
    let at = memmem::find(&data[..data.len().min(256)], TEXT)? + TEXT.len();
    std::str::from_utf8(data.get(at..at + 8)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Seen;

    fn event(number: u64, message: u64) -> String {
        format!("event: message\nid: 1-{number}-0000beef\ndata: {{\"message\":\"{message:08} x\"}}\n\n")
    }

    fn check(text: &str, expected: Result<(u64, u64), &str>) {
        let mut seen = Seen::default();
        match (seen.take(text.as_bytes()), expected) {
            (Ok(used), Ok(counts)) => {
                assert_eq!((used, (seen.messages, seen.answers)), (text.len(), counts), "{text}");
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (got, _) => panic!("{got:?} for {text}"),
        }
    }

    #[test]
    fn counts_what_is_in_order_and_refuses_the_rest() {
        let priming = "id: 1-0-0000beef\nretry: 1000\ndata: \n\n";
        let answer = "event: message\nid: 1-3-0000beef\ndata: {\"result\":{}}\n\n";
        let (one, two) = (event(1, 1), event(2, 2));
        check(&format!("{priming}: open\n\n{one}{two}{answer}"), Ok((2, 1)));
        check(&format!("{one}{answer}"), Err("event 3 after event 1"));
        check(&format!("{one}{one}"), Err("event 1 after event 1"));
        check(&format!("{one}{}", event(2, 3)), Err("message 3 in event 2"));
    }
}
