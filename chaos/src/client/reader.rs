//! Reads an event stream and records every event.

use std::time::Duration;

use bytes::Bytes;
use steadfast_verify::Seen;
use steadfast_wire::sse::{Decoder, Event, Limits};

use super::http::Response;
use crate::recorder::Recorder;

/// After this time without bytes the client considers the connection dead. Gateways send a
/// keep-alive comment every two seconds.
const MAX_SILENCE: Duration = Duration::from_secs(8);
const LIMITS: Limits = Limits { max_line_bytes: 1 << 20, max_event_bytes: 1 << 20 };

/// The session and the call that a stream belongs to.
#[derive(Clone, Debug)]
pub(crate) struct StreamId {
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
    chunk: Bytes,
}

#[derive(Debug)]
pub(crate) enum Next {
    Event(Event),
    /// The server ended the response properly.
    Ended,
    /// The connection failed, was silent for too long, or sent an invalid event.
    Broken,
}

impl Reader {
    pub(crate) fn new(
        recorder: &Recorder,
        stream: &StreamId,
        last_event_id: Option<&str>,
        response: Response,
    ) -> Self {
        let connection = recorder.next_connection();
        let StreamId { session, call } = stream.clone();
        recorder.record(Seen::Connected {
            connection,
            session,
            of: call,
            after: last_event_id.map(str::to_owned),
        });
        let (recorder, decoder) = (recorder.clone(), Decoder::new(LIMITS));
        Self { recorder, connection, response, decoder, chunk: Bytes::new() }
    }

    /// Waits for the next event, and records it.
    pub(crate) async fn next(&mut self) -> Next {
        loop {
            match self.decoder.decode(&mut self.chunk) {
                Ok(Some(event)) => return self.record_event(event),
                Ok(None) => {}
                Err(_) => return self.record_broken(),
            }
            match tokio::time::timeout(MAX_SILENCE, self.response.chunk()).await {
                Ok(Some(Ok(chunk))) => self.chunk = chunk,
                Ok(None) => {
                    self.recorder.record(Seen::Ended { connection: self.connection });
                    return Next::Ended;
                }
                Ok(Some(Err(_))) | Err(_) => return self.record_broken(),
            }
        }
    }

    fn record_event(&self, event: Event) -> Next {
        // An event that only sets the retry delay carries no message.
        if event.id.is_some() || !event.data.is_empty() {
            let data = String::from_utf8_lossy(&event.data).into_owned();
            self.recorder.record(Seen::Event { connection: self.connection, id: event.id.clone(), data });
        }
        Next::Event(event)
    }

    /// Records that the connection is broken, or that the client closes it.
    pub(crate) fn record_broken(&self) -> Next {
        self.recorder.record(Seen::Broken { connection: self.connection });
        Next::Broken
    }
}
