//! One call, from its request to its outcome, as the protocol has it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use steadfast_verify::Seen;
use steadfast_wire::sse::Event;

use super::asks;
use super::http::NoResponse;
use super::reader::{Next, Reader, Subject};
use super::session::{Listening, PAUSE, Session, is_passing};
use crate::server::Tool;

/// How often a request that was refused is made again.
const ATTEMPTS: usize = 6;
/// How long the end of a stream is waited for after the answer.
const FAREWELL: Duration = Duration::from_secs(10);
/// The longest wait that a server may ask for.
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// What a client has in mind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) tool: Tool,
    /// How long the server shall take.
    pub(crate) ms: u64,
    /// Changes its mind after so long.
    pub(crate) cancel: Option<Duration>,
    /// Reads the whole stream again afterwards.
    pub(crate) reread: bool,
}

/// What came of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// It was accepted, and what had to be read was read.
    Done,
    /// Nothing was done, says whoever refused it: another request may be made.
    Refused,
    /// Nobody knows.
    Unheard,
}

/// Makes a call: again if it was refused, or if nobody knows and that does no harm. Each time it is another call.
pub(crate) async fn make(session: &Arc<Session>, number: u64, wish: Wish) {
    for attempt in 0..ATTEMPTS {
        if session.is_over() {
            return;
        }
        let name = format!("{}.{number}.{attempt}", session.name);
        session.shared.in_flight.fetch_add(1, Ordering::Relaxed);
        let call = Call { session, name, id: session.next_id(), wish };
        let sent = call.run().await;
        session.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        match sent {
            Sent::Done => return,
            // Whatever is broken needs a while, and calls are too good to be wasted on it.
            Sent::Refused | Sent::Unheard => tokio::time::sleep(PAUSE * 2).await,
        }
        if sent == Sent::Unheard && !wish.tool.is_safe() {
            return;
        }
    }
}

struct Call<'a> {
    session: &'a Arc<Session>,
    name: String,
    id: i64,
    wish: Wish,
}

/// How far a stream was read.
#[derive(Debug, Default)]
struct Progress {
    /// The first event id, to begin from anew.
    first: Option<String>,
    last: Option<String>,
    retry: Option<Duration>,
    is_accepted: bool,
    is_answered: bool,
}

impl Call<'_> {
    async fn run(&self) -> Sent {
        self.note(Seen::Sent {
            call: self.name.clone(),
            session: self.session.name.clone(),
            id: self.id,
            tool: self.wish.tool.name().to_owned(),
            safe: self.wish.tool.is_safe(),
        });
        let response = match self.session.post(&self.request()).await {
            Ok(response) => response,
            Err(NoResponse::NotSent) => return self.refused(0, "nobody there".to_owned()),
            Err(NoResponse::Broken(why)) => return self.unheard(why),
        };
        let status = response.status;
        if status == StatusCode::OK && response.is_stream() {
            let reader = Reader::new(&self.session.shared.recorder, &self.subject(), None, response);
            return self.follow(reader).await;
        }
        // A refusal of the gateway is in JSON-RPC. Whatever else there is was said by a proxy, which knows nothing.
        match response.json().await {
            Ok(answer) if answer["error"]["data"]["reason"] == "outcome_unknown" => {
                self.unheard("the gateway does not know".to_owned())
            }
            Ok(answer) if answer["error"].is_object() => {
                let reason = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
                self.refused(status.as_u16(), reason)
            }
            _ => self.unheard(format!("status {status}")),
        }
    }

    fn request(&self) -> Value {
        json!({"jsonrpc": "2.0", "id": self.id, "method": "tools/call", "params": {
            "name": self.wish.tool.name(),
            "arguments": {"call": self.name, "ms": self.wish.ms},
            "_meta": {"progressToken": self.name}}})
    }

    /// Reads the stream to its end, coming back as often as it breaks. A cancellation is sent beside.
    async fn follow(&self, reader: Reader) -> Sent {
        let mut progress = Progress::default();
        let answered = {
            let mut cancelling = std::pin::pin!(self.change_mind());
            let mut reading = std::pin::pin!(self.read_until_answered(reader, &mut progress));
            let mut is_cancelled = false;
            loop {
                tokio::select! {
                    answered = &mut reading => break answered,
                    () = &mut cancelling, if !is_cancelled => is_cancelled = true,
                }
            }
        };
        let Some(mut reader) = answered else {
            return if progress.is_accepted { Sent::Done } else { self.unheard("cut at once".to_owned()) };
        };
        if self.read_to_end(&mut reader, &mut progress).await && self.wish.reread {
            self.reread(&progress).await;
        }
        Sent::Done
    }

    /// The reader that has just read the answer. `None` if there will be none.
    async fn read_until_answered(&self, mut reader: Reader, progress: &mut Progress) -> Option<Reader> {
        loop {
            let ended = loop {
                match reader.next().await {
                    Next::Event(event) => self.take(&event, progress),
                    Next::Ended => break true,
                    Next::Broken => break false,
                }
                if progress.is_answered {
                    return Some(reader);
                }
            };
            if ended && self.wish.cancel.is_some() && progress.retry.is_none() {
                // The end of a stream without an answer is what a cancelled call comes to.
                return None;
            }
            reader = self.come_back(progress).await?;
        }
    }

    /// Resumes the stream. `None` if that is impossible, or nobody wants it any more.
    async fn come_back(&self, progress: &mut Progress) -> Option<Reader> {
        let last = progress.last.clone()?;
        loop {
            tokio::time::sleep(progress.retry.take().unwrap_or(PAUSE)).await;
            if self.session.is_over() {
                self.note(Seen::Abandoned { call: self.name.clone() });
                return None;
            }
            match self.session.listen(&self.subject(), Some(&last)).await {
                Listening::Stream(reader) => return Some(*reader),
                Listening::NotNow => {}
                Listening::Refused => return None,
            }
        }
    }

    fn take(&self, event: &Event, progress: &mut Progress) {
        if let Some(ms) = event.retry_ms {
            progress.retry = Some(Duration::from_millis(ms).min(LONGEST_RETRY));
        }
        if let Some(id) = &event.id {
            progress.first.get_or_insert_with(|| id.clone());
            progress.last = Some(id.clone());
        }
        if event.id.is_none() && event.data.is_empty() {
            return;
        }
        if !progress.is_accepted {
            progress.is_accepted = true;
            self.note(Seen::Accepted { call: self.name.clone() });
        }
        let Ok(message) = serde_json::from_slice::<Value>(&event.data) else { return };
        match (message.get("method").and_then(Value::as_str), message.get("id")) {
            (Some(_), Some(_)) => asks::answer(self.session, message),
            (None, Some(id)) if *id == json!(self.id) => progress.is_answered = true,
            _ => {}
        }
    }

    /// Whether the stream ended as it should.
    async fn read_to_end(&self, reader: &mut Reader, progress: &mut Progress) -> bool {
        let reading = async {
            loop {
                match reader.next().await {
                    Next::Event(event) => self.take(&event, progress),
                    Next::Ended => return true,
                    Next::Broken => return false,
                }
            }
        };
        let ended = tokio::time::timeout(FAREWELL, reading).await;
        ended.unwrap_or_else(|_| {
            reader.broken();
            false
        })
    }

    /// Reads the whole stream again, which must be what it was.
    async fn reread(&self, progress: &Progress) {
        if self.session.is_over() {
            return;
        }
        let listening = self.session.listen(&self.subject(), progress.first.as_deref()).await;
        if let Listening::Stream(mut reader) = listening {
            self.read_to_end(&mut reader, &mut Progress { is_accepted: true, ..Progress::default() }).await;
        }
    }

    /// Cancels the call if that was the wish.
    async fn change_mind(&self) {
        let Some(after) = self.wish.cancel else { return };
        tokio::time::sleep(after).await;
        self.note(Seen::Cancelled { call: self.name.clone() });
        let params = json!({"requestId": self.id, "reason": "the user has changed their mind"});
        self.session
            .tell(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
            .await;
    }

    fn refused(&self, status: u16, reason: String) -> Sent {
        self.note(Seen::Refused { call: self.name.clone(), status, reason });
        let may_repeat = status == 0 || StatusCode::from_u16(status).is_ok_and(is_passing);
        if may_repeat { Sent::Refused } else { Sent::Done }
    }

    fn unheard(&self, why: String) -> Sent {
        self.note(Seen::Unheard { call: self.name.clone(), why });
        Sent::Unheard
    }

    fn subject(&self) -> Subject {
        self.session.subject(Some(&self.name))
    }

    fn note(&self, seen: Seen) {
        self.session.shared.recorder.note(seen);
    }
}
