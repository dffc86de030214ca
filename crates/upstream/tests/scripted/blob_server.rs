//! A server with the fault of php-sdk: it keeps its session as one blob. Each request loads the
//! blob, works, and writes it back. The answers wait in the blob until the request sends what it
//! finds there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Value, json};

/// How long a request works between loading the blob and writing it back.
const WORK: Duration = Duration::from_millis(3);

/// A `_meta` that is larger than this makes loading and writing the blob slow.
const LARGE: usize = 16 << 10;

/// How many pings the gateway sends at a time.
pub(super) const PINGS: usize = 8;

#[derive(Clone, Debug, Default)]
struct Blob {
    outgoing: Vec<Value>,
    count: u64,
}

/// The blobs by session, and how many calls were at the server at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Blobs {
    blobs: Arc<Mutex<BTreeMap<String, Blob>>>,
    calls: Arc<Mutex<(usize, usize)>>,
}

impl Blobs {
    /// The largest number of calls that were at the server at a time.
    pub(super) fn peak(&self) -> usize {
        self.calls.lock().unwrap().1
    }

    fn load(&self, session: &str) -> Blob {
        self.blobs.lock().unwrap().get(session).cloned().unwrap_or_default()
    }

    fn save(&self, session: &str, blob: Blob) {
        self.blobs.lock().unwrap().insert(session.to_owned(), blob);
    }

    fn call_begins(&self) {
        let mut calls = self.calls.lock().unwrap();
        calls.0 += 1;
        calls.1 = calls.1.max(calls.0);
    }

    /// Handles one request as php-sdk does. `begin` is the work after the blob is loaded.
    fn handle(&self, request: &Request, begin: Reply) -> Reply {
        let session = request.header("mcp-session-id").unwrap_or_default().to_owned();
        let (loaded, id) = (self.load(&session), request.body["id"].clone());
        let is_call = request.method() == "tools/call";
        if is_call {
            self.call_begins();
        }
        let (writer, sender, session_of_sender) = (self.clone(), self.clone(), session.clone());
        let write = move || {
            let mut blob = loaded.clone();
            blob.count += u64::from(is_call);
            let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"count": blob.count}});
            blob.outgoing.push(answer);
            writer.save(&session, blob);
            Reply::default()
        };
        let send = move || {
            let mut blob = sender.load(&session_of_sender);
            let mut outgoing = std::mem::take(&mut blob.outgoing);
            sender.save(&session_of_sender, blob);
            if is_call {
                sender.calls.lock().unwrap().0 -= 1;
            }
            match outgoing.len() {
                0 => Reply::status(202),
                1 => Reply::json(&outgoing.remove(0)),
                _ => Reply::json(&Value::Array(outgoing)),
            }
        };
        begin.later(write).pause(WORK).later(send)
    }
}

/// Starts the server. Its tools count in the session. `ask` asks the client first. The script takes
/// precedence.
pub(super) async fn blob_server(
    script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
) -> (Server, Blobs) {
    let blobs = Blobs::default();
    let state = blobs.clone();
    let server = Server::with_sessions(move |request| {
        if let Some(reply) = script(request) {
            return Some(reply);
        }
        match request.method() {
            "ping" | "tools/list" if request.text.len() > LARGE => {
                let session = request.header("mcp-session-id").map(str::to_owned);
                let seen = move |log: &[Request]| {
                    let is_ping = |r: &&Request| {
                        r.method() == "ping" && r.header("mcp-session-id").map(str::to_owned) == session
                    };
                    log.iter().filter(is_ping).count().is_multiple_of(PINGS)
                };
                Some(state.handle(request, Reply::default().until(seen)))
            }
            "tools/call" if request.calls("ask") => {
                let asked =
                    json!({"jsonrpc": "2.0", "id": 1000, "method": "elicitation/create", "params": {}});
                let is_answered = |log: &[Request]| log.iter().any(Request::is_answer);
                let reply = Reply::stream().event(&asked).until(is_answered);
                Some(reply.answer(request, &json!({"asked": true})))
            }
            "ping" | "tools/call" | "tools/list" => Some(state.handle(request, Reply::default().pause(WORK))),
            _ => None,
        }
    })
    .await;
    (server, blobs)
}
