//! Listens to several streams at once.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::outcome::Outcome;
use crate::session::Session;
use crate::stream::Stream;

const OPENS_WITHIN: Duration = Duration::from_millis(200);

/// What comes from anywhere, in the order of arrival.
#[derive(Debug)]
pub(super) struct Ears {
    heard: mpsc::Receiver<Heard>,
    speak: mpsc::Sender<Heard>,
    listeners: JoinSet<()>,
}

#[derive(Debug)]
pub(super) struct Heard {
    pub(super) on: &'static str,
    pub(super) said: Said,
}

#[derive(Debug)]
pub(super) enum Said {
    Message(Value),
    /// The stream is over, or there never was one.
    End(Outcome),
}

impl Ears {
    pub(super) fn new() -> Self {
        let (speak, heard) = mpsc::channel(64);
        Self { heard, speak, listeners: JoinSet::new() }
    }

    /// Posts a request and listens to its stream.
    pub(super) fn post(&mut self, on: &'static str, session: &Session, request: Value) {
        let (session, speak) = (session.clone(), self.speak.clone());
        self.listeners.spawn(async move { listen(on, session.post(&request).await, speak).await });
    }

    /// Listens to the stream that belongs to no call. Some servers say nothing there before there is something to say, not even
    /// that the stream is open: it has a moment to be so.
    pub(super) async fn get(&mut self, on: &'static str, session: &Session) {
        let (session, speak) = (session.clone(), self.speak.clone());
        self.listeners.spawn(async move { listen(on, session.get(None).await, speak).await });
        sleep(OPENS_WITHIN).await;
    }

    /// The next that is heard; `None` if all is silent for as long as `limit`.
    pub(super) async fn hear(&mut self, limit: Duration) -> Option<Heard> {
        // There is always a sender, this one: no end but silence.
        timeout(limit, self.heard.recv()).await.ok().flatten()
    }
}

async fn listen(on: &'static str, stream: Result<Stream, Outcome>, speak: mpsc::Sender<Heard>) {
    let end = match stream {
        Err(outcome) => outcome,
        Ok(mut stream) => loop {
            let said = match stream.next().await {
                Ok(Some(message)) => Said::Message(message),
                Ok(None) => break Outcome::Lost("the stream ended".to_owned()),
                Err(how) => break Outcome::Lost(how),
            };
            if speak.send(Heard { on, said }).await.is_err() {
                return;
            }
        },
    };
    // Whoever does not listen any more does not care.
    let _ = speak.send(Heard { on, said: Said::End(end) }).await;
}
