//! Event streams, read event by event, with every byte kept.

use serde_json::Value;

use super::wire::{Broken, Framing, Head, Wire, find};

/// One frame of an event stream.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) raw: Vec<u8>,
    pub(crate) id: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) retry: Option<u64>,
    pub(crate) data: Option<String>,
    pub(crate) comment: Option<String>,
}

impl Frame {
    /// Reads one frame, blank line included.
    pub(crate) fn parse(raw: &[u8]) -> Self {
        let mut frame = Self { raw: raw.to_vec(), ..Self::default() };
        for line in
            String::from_utf8(raw.to_vec()).expect("a stream of text").lines().filter(|line| !line.is_empty())
        {
            match line.split_once(": ").unwrap_or_else(|| (line.trim_end_matches(':'), "")) {
                ("id", value) => frame.id = Some(value.to_owned()),
                ("event", value) => frame.event = Some(value.to_owned()),
                ("retry", value) => frame.retry = Some(value.parse().expect("a number")),
                ("data", value) => match &mut frame.data {
                    Some(data) => data.extend(["\n", value]),
                    None => frame.data = Some(value.to_owned()),
                },
                ("", value) => frame.comment = Some(value.to_owned()),
                _ => {}
            }
        }
        frame
    }

    /// The JSON-RPC message that it carries, if it carries one.
    pub(crate) fn message(&self) -> Option<Value> {
        let data = self.data.as_deref().filter(|data| !data.is_empty())?;
        Some(serde_json::from_str(data).unwrap_or_else(|error| panic!("{error} in {data:?}")))
    }

    /// A priming event has an id and no message.
    pub(crate) fn is_priming(&self) -> bool {
        self.id.is_some() && self.data.as_deref() == Some("")
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.raw))
    }
}

/// What a resumed stream brought, without comments, behind the event that repeats the id it was
/// resumed from. A stream that is over and has nothing left brings neither.
pub(crate) fn resumed(frames: &[Frame], from: &str) -> Vec<Frame> {
    let mut events = frames.iter().filter(|frame| frame.comment.is_none()).cloned();
    let Some(first) = events.next() else { return Vec::new() };
    assert_eq!(String::from_utf8_lossy(&first.raw), format!("id: {from}\nretry: 1000\ndata: \n\n"));
    events.collect()
}

/// All whole frames.
pub(crate) fn parse_frames(bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut rest = bytes;
    while let Some(end) = find(rest, b"\n\n") {
        frames.push(Frame::parse(&rest[..end + 2]));
        rest = &rest[end + 2..];
    }
    frames
}

/// A reply that is an event stream, being read.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    wire: Wire,
    framing: Framing,
    /// Everything that was read.
    raw: Vec<u8>,
    /// How much of it was given out as frames.
    given: usize,
    /// How much of it is known to hold no end of a frame beyond those.
    searched: usize,
}

impl Stream {
    pub(super) fn new(wire: Wire, head: Head, framing: Framing) -> Self {
        assert_eq!(head.header("content-type"), Some("text/event-stream"), "{head:?}");
        Self {
            status: head.status,
            headers: head.headers,
            wire,
            framing,
            raw: Vec::new(),
            given: 0,
            searched: 0,
        }
    }

    /// The next frame; `None` after the proper end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        self.try_next().await.expect("an unbroken connection")
    }

    pub(crate) async fn try_next(&mut self) -> Result<Option<Frame>, Broken> {
        loop {
            let from = self.searched.max(self.given);
            if let Some(at) = find(&self.raw[from..], b"\n\n") {
                let frame = Frame::parse(&self.raw[self.given..from + at + 2]);
                self.given = from + at + 2;
                return Ok(Some(frame));
            }
            self.searched = self.raw.len().saturating_sub(1);
            match self.wire.body(&mut self.framing).await? {
                Some(piece) => self.raw.extend_from_slice(&piece),
                None => {
                    assert_eq!(self.given, self.raw.len(), "the stream ended inside of an event");
                    return Ok(None);
                }
            }
        }
    }

    /// The next frame that carries a message.
    pub(crate) async fn event(&mut self) -> Frame {
        loop {
            let frame = self.next().await.expect("another event before the end of the stream");
            if frame.message().is_some() {
                return frame;
            }
        }
    }

    /// The next message.
    pub(crate) async fn message(&mut self) -> Value {
        self.event().await.message().expect("an event with a message")
    }

    /// Nothing more has arrived so far.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        tokio::time::timeout(std::time::Duration::ZERO, self.try_next()).await.is_err()
    }

    /// Every frame up to the proper end of the stream.
    pub(crate) async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// Every message up to the proper end of the stream.
    pub(crate) async fn messages(&mut self) -> Vec<Value> {
        self.rest().await.iter().filter_map(Frame::message).collect()
    }

    /// Reads until so many bytes have arrived, or to the end of the stream if that comes first.
    pub(crate) async fn read_to(&mut self, count: usize) {
        while self.raw.len() < count {
            match self.wire.body(&mut self.framing).await.expect("an unbroken connection") {
                Some(piece) => self.raw.extend_from_slice(&piece),
                None => return,
            }
        }
    }

    /// Everything that was read so far.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Hangs up. Gives what a client has that noticed the break after so many bytes.
    pub(crate) fn cut_at(self, count: usize) -> Vec<u8> {
        self.raw[..count.min(self.raw.len())].to_vec()
    }

    /// Hangs up.
    pub(crate) fn cut(self) {}
}
