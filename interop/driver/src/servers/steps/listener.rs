//! Reads several streams at once and yields their messages in the order of arrival.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::servers::client::{Session, Stream};
use crate::servers::outcome::Outcome;

/// How long the standalone stream may take to open.
const OPEN_DELAY: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Listener {
    receiver: mpsc::Receiver<Received>,
    sender: mpsc::Sender<Received>,
    readers: JoinSet<()>,
}

/// A message, or the end of a stream, and the name of that stream.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) stream: &'static str,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Message(Value),
    /// The stream has ended, or could not be opened.
    End(Outcome),
}

impl Listener {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(64);
        Self { receiver, sender, readers: JoinSet::new() }
    }

    /// Posts a request and reads the stream of its response.
    pub(super) fn post(&mut self, stream: &'static str, session: &Session, request: Value) {
        let (session, sender) = (session.clone(), self.sender.clone());
        self.readers.spawn(async move { read(stream, session.post(&request).await, sender).await });
    }

    /// Opens the standalone stream and reads it. Some servers send nothing on it, not even response
    /// headers, until they have a message. So this function waits for a fixed time.
    pub(super) async fn get(&mut self, stream: &'static str, session: &Session) {
        let (session, sender) = (session.clone(), self.sender.clone());
        self.readers.spawn(async move { read(stream, session.get(None).await, sender).await });
        sleep(OPEN_DELAY).await;
    }

    /// Returns what arrives next on any stream, or `None` if nothing arrives within `limit`.
    pub(super) async fn next(&mut self, limit: Duration) -> Option<Received> {
        // The channel never closes, because this value holds a sender.
        timeout(limit, self.receiver.recv()).await.ok().flatten()
    }
}

async fn read(name: &'static str, stream: Result<Stream, Outcome>, sender: mpsc::Sender<Received>) {
    let end = match stream {
        Err(outcome) => outcome,
        Ok(mut stream) => loop {
            let what = match stream.next().await {
                Ok(Some(message)) => What::Message(message),
                Ok(None) => break Outcome::Lost("the stream ended".to_owned()),
                Err(how) => break Outcome::Lost(how),
            };
            if sender.send(Received { stream: name, what }).await.is_err() {
                return;
            }
        },
    };
    // Fails if the listener is dropped, which ends the step.
    let _ = sender.send(Received { stream: name, what: What::End(end) }).await;
}
