//! Reading a stream, and writing down every event.

use std::time::Duration;

use bytes::Bytes;
use steadfast_verify::Seen;
use steadfast_wire::sse::{Decoder, Event, Limits};

use super::http::Response;
use crate::recorder::Recorder;

/// A stream that says nothing for so long is dead: gateways give a sign of life every two seconds.
const SILENCE: Duration = Duration::from_secs(8);
const LIMITS: Limits = Limits { max_line_bytes: 1 << 20, max_event_bytes: 1 << 20 };

/// Whose stream it is.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) session: String,
    /// `None` for a standalone stream.
    pub(crate) call: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Reader {
    recorder: Recorder,
    connection: u64,
    response: Response,
    decoder: Decoder,
    piece: Bytes,
}

#[derive(Debug)]
pub(crate) enum Next {
    Event(Event),
    /// As it should be.
    Ended,
    Broken,
}

impl Reader {
    pub(crate) fn new(
        recorder: &Recorder,
        subject: &Subject,
        after: Option<&str>,
        response: Response,
    ) -> Self {
        let connection = recorder.connection();
        let Subject { session, call } = subject.clone();
        recorder.note(Seen::Connected { connection, session, of: call, after: after.map(str::to_owned) });
        let (recorder, decoder) = (recorder.clone(), Decoder::new(LIMITS));
        Self { recorder, connection, response, decoder, piece: Bytes::new() }
    }

    pub(crate) async fn next(&mut self) -> Next {
        loop {
            match self.decoder.decode(&mut self.piece) {
                Ok(Some(event)) => return self.take(event),
                Ok(None) => {}
                Err(_) => return self.broken(),
            }
            match tokio::time::timeout(SILENCE, self.response.piece()).await {
                Ok(Some(Ok(piece))) => self.piece = piece,
                Ok(None) => {
                    self.recorder.note(Seen::Ended { connection: self.connection });
                    return Next::Ended;
                }
                Ok(Some(Err(_))) | Err(_) => return self.broken(),
            }
        }
    }

    fn take(&self, event: Event) -> Next {
        // An event with nothing in it but a time to wait is for the reader alone.
        if event.id.is_some() || !event.data.is_empty() {
            let data = String::from_utf8_lossy(&event.data).into_owned();
            self.recorder.note(Seen::Event { connection: self.connection, id: event.id.clone(), data });
        }
        Next::Event(event)
    }

    pub(crate) fn broken(&self) -> Next {
        self.recorder.note(Seen::Broken { connection: self.connection });
        Next::Broken
    }
}
