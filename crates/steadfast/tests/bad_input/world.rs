//! The world in which each row happens, and the check that it is the same world afterwards.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use steadfast::{CloseReason, Denied, Principal, SessionEventKind, SessionToken};

use super::row::{Expect, Row};
use crate::support::{Backing, Host, Http, Reply, Session, Stream, session};

/// A host with a few sessions, of which one is busy.
pub(crate) struct World {
    pub(crate) host: Host,
    http: Http,
    main: Witness,
    old: Witness,
    /// Calls in flight, with their open connections: nothing may happen to them.
    busy: Vec<Stream>,
    asking: Stream,
    names: Vec<(&'static str, String)>,
    heard: Arc<Mutex<Vec<SessionEventKind>>>,
    events: usize,
    sessions: u64,
}

/// A session whose streams are counted.
struct Witness {
    session: Session,
    next_stream: u64,
    calls: usize,
}

impl World {
    pub(crate) async fn new(backing: Backing) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        let host = Host::start(backing, move |builder| {
            let ear = Arc::clone(&ear);
            builder
                .max_request_bytes(64 << 10)
                .principal(principal)
                .on_session_event(move |event| ear.lock().expect("the lock is not poisoned").push(event.kind))
        })
        .await;
        let main = Session::open(&host).await;
        let old = Session::at(&host, "2025-03-26").await;
        let middle = Session::at(&host, "2025-06-18").await;
        let foreign = open_as(&host, "bob").await;
        let deleted = Session::open(&host).await;
        assert_eq!(deleted.delete().send().await.status, 204);
        // Stream 1 of both waits at a gate, stream 2 has asked and been answered, stream 3 asks and
        // waits.
        let mut busy = Vec::new();
        for session in [&main, &old] {
            busy.push(session.tool("busy", "gate", json!({"name": "the end"})).stream().await);
        }
        host.gates.reached("the end", 2).await;
        let mut asked = ask(&main, "asked").await;
        assert_eq!(asked.message().await["id"], "ask-0");
        assert_eq!(main.answer(&json!("ask-0"), json!({"roots": []})).await.status, 202);
        asked.rest().await;
        let mut asking = ask(&main, "asking").await;
        assert_eq!(asking.message().await["id"], "ask-1");
        let tag = |id: &str| id.rsplit('-').next().unwrap_or_default().to_owned();
        let mut main = Witness { session: main, next_stream: 4, calls: 0 };
        let mut old = Witness { session: old, next_stream: 2, calls: 0 };
        let names = vec![
            ("<session>", main.session.id.clone()),
            ("<old>", old.session.id.clone()),
            ("<middle>", middle.id.clone()),
            ("<foreign>", foreign.clone()),
            ("<deleted>", deleted.id),
            ("<unknown>", "A".repeat(32)),
            ("<tag>", tag(&main.works().await)),
            ("<old-tag>", tag(&old.works().await)),
            ("<foreign-tag>", SessionToken::parse(&foreign).expect("a token").id().short()),
        ];
        let http = Http::to(&host);
        let world = Self { http, main, old, busy, asking, names, heard, events: 6, sessions: 4, host };
        world.settle().await;
        world
    }

    /// Sends a row and checks everything about it.
    pub(crate) async fn check(&mut self, row: &Row) {
        let bytes = self.fill(&row.encode());
        let reply = self.http.send_bytes(&bytes, row.verb).await;
        let reply = reply.unwrap_or_else(|_| panic!("{}: no whole reply", row.name));
        judge(row, &reply);
        if let Expect::Served { .. } | Expect::Failed { .. } = row.expect {
            // A request that looks strange and is good has its stream like any other.
            assert_eq!(answer_event(&reply), (self.main.next_stream, 1), "{}", row.name);
            self.main.next_stream += 1;
        }
        self.is_unchanged(row.name).await;
    }

    /// What was in flight all the time ends as if nothing had happened, and nothing was heard but
    /// what should be.
    pub(crate) async fn finish(mut self) {
        self.host.gates.open("the end");
        for busy in &mut self.busy {
            let messages = busy.messages().await;
            assert_eq!(messages.len(), 1, "{messages:?}");
            assert_eq!(messages[0]["id"], "busy");
            assert!(messages[0]["result"].is_object(), "{messages:?}");
        }
        let answered = self.main.session.answer(&json!("ask-1"), json!({"roots": []})).await;
        assert_eq!(answered.status, 202);
        let messages = self.asking.messages().await;
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!(messages[0]["id"], "asking");
        // Listeners hear in order, so whatever came before the end of this session has been heard
        // by then.
        assert_eq!(self.main.session.delete().send().await.status, 204);
        self.events += 1;
        self.settle().await;
        let last = self.heard.lock().expect("the lock is not poisoned").last().copied();
        assert_eq!(last, Some(SessionEventKind::Closed(CloseReason::Deleted)));
    }

    async fn is_unchanged(&mut self, row: &str) {
        let usage = self.host.server().service().engine().store().usage().await.expect("the store works");
        assert_eq!(usage.sessions, self.sessions, "{row}: sessions came or went");
        let engine = self.host.server().service().engine().clone();
        assert_eq!((engine.exchanges(), engine.subscriptions()), (0, 0), "{row}: a request is in flight");
        let heard = self.heard.lock().expect("the lock is not poisoned").clone();
        assert_eq!(heard.len(), self.events, "{row}: a listener heard {:?}", heard.last());
        self.main.works().await;
        self.old.works().await;
    }

    /// Waits until the listener has heard all there is to hear.
    async fn settle(&self) {
        let all_heard = async {
            while self.heard.lock().expect("the lock is not poisoned").len() < self.events {
                tokio::task::yield_now().await;
            }
        };
        crate::support::within("the listener", all_heard).await;
        assert_eq!(self.heard.lock().expect("the lock is not poisoned").len(), self.events);
    }

    fn fill(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for (name, value) in &self.names {
            while let Some(at) = bytes.windows(name.len()).position(|window| window == name.as_bytes()) {
                bytes.splice(at..at + name.len(), value.bytes());
            }
        }
        bytes
    }
}

impl Witness {
    /// A call is answered, on the stream that is next in line and on no other. Gives the id of the
    /// answer.
    async fn works(&mut self) -> String {
        self.calls += 1;
        let (id, text) = (format!("reference {}", self.calls), format!("{}", self.calls));
        let reply = self.session.tool(id.as_str(), "echo", json!({"text": text})).send().await;
        let answer = reply.answer();
        assert_eq!(answer["id"], json!(id));
        assert_eq!(session::said(&answer), text);
        assert_eq!(answer_event(&reply), (self.next_stream, 1), "streams are numbered one by one");
        self.next_stream += 1;
        reply.frames().last().and_then(|frame| frame.id.clone()).expect("an event id")
    }
}

fn judge(row: &Row, reply: &Reply) {
    let sent = String::from_utf8_lossy(&row.encode()).into_owned();
    let context = format!("{}: {} {}\n{sent:.1000}", row.name, reply.status, reply.text());
    assert!(!reply.text().contains("\"id\":null"), "{context}");
    match &row.expect {
        Expect::Refused { status, code, id, says } => {
            assert_eq!(reply.status, *status, "{context}");
            assert_refusal(reply, *code, *id, says, &context);
        }
        Expect::Unheard { status } => assert_eq!(reply.status, *status, "{context}"),
        Expect::Taken => assert_eq!((reply.status, reply.body.len()), (202, 0), "{context}"),
        Expect::Served { id } => {
            assert_eq!(reply.status, 200, "{context}");
            assert_eq!(reply.answer()["id"], text(id), "{context}");
            assert!(reply.answer()["result"].is_object(), "{context}");
        }
        Expect::Failed { id, code } => {
            assert_eq!(reply.status, 200, "{context}");
            assert_eq!(reply.answer()["id"], text(id), "{context}");
            assert_eq!(reply.answer()["error"]["code"], *code, "{context}");
        }
        Expect::Answered { id } => {
            assert_eq!((reply.status, reply.header("mcp-session-id")), (200, None), "{context}");
            assert_eq!(reply.json()["id"], text(id), "{context}");
            assert_eq!(reply.json()["result"]["resultType"], "complete", "{context}");
        }
        Expect::FailedPlainly { id, code } => {
            assert_eq!((reply.status, reply.header("mcp-session-id")), (200, None), "{context}");
            assert_eq!(reply.json()["id"], text(id), "{context}");
            assert_eq!(reply.json()["error"]["code"], *code, "{context}");
        }
    }
}

/// A refusal is one JSON-RPC error and nothing else, says something short that helps, and has the
/// headers of its status.
fn assert_refusal(reply: &Reply, code: i64, id: Option<&str>, says: &str, context: &str) {
    assert_eq!(reply.header("content-type"), Some("application/json"), "{context}");
    assert_eq!(reply.header("mcp-session-id"), None, "{context}");
    let body = reply.json();
    let message = body["error"]["message"].as_str().unwrap_or_default();
    let mut whole = json!({"jsonrpc": "2.0", "error": {"code": code, "message": message}});
    if let Some(id) = id {
        whole["id"] = text(id);
    }
    if let Some(data) = body["error"].get("data") {
        whole["error"]["data"] = data.clone();
    }
    assert_eq!(body, whole, "{context}");
    assert!(message.contains(says), "{context}");
    assert!(message.len() < 400, "{} bytes: {context}", message.len());
    let due = match reply.status {
        401 => Some(("www-authenticate", "Bearer")),
        405 => Some(("allow", "GET, POST, DELETE")),
        429 | 503 => Some(("retry-after", "1")),
        _ => None,
    };
    if let Some((name, value)) = due {
        assert_eq!(reply.header(name), Some(value), "{context}");
    }
}

fn text(json: &str) -> Value {
    serde_json::from_str(json).expect("the table holds JSON")
}

/// Stream and sequence number of the last event.
fn answer_event(reply: &Reply) -> (u64, u64) {
    let frames = reply.frames();
    let id = frames.last().and_then(|frame| frame.id.as_deref()).expect("an event id");
    let mut numbers = id.split('-').map(|part| part.parse().unwrap_or(u64::MAX));
    (numbers.next().unwrap_or(u64::MAX), numbers.next().unwrap_or(u64::MAX))
}

/// A call that asks the client for its roots.
async fn ask(session: &Session, id: &str) -> Stream {
    session.tool(id, "ask", json!({"method": "roots/list"})).stream().await
}

/// How long a client has to wait that comes too early. It is less than a second, which is the
/// smallest value of `Retry-After`.
const EARLY: std::time::Duration = std::time::Duration::from_millis(1);

/// What a token that is too weak is told.
pub(crate) const WEAK: &str = r#"Bearer error="insufficient_scope", scope="more""#;

/// Returns the principal that the token names. Some tokens are refused.
pub(crate) fn principal(parts: &::http::request::Parts) -> Result<Principal, Denied> {
    let token = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
    match token.and_then(|token| token.strip_prefix("Bearer ")) {
        None => Ok(Principal::anonymous()),
        Some("expired") => Err(Denied::Unauthenticated { challenge: "Bearer".into() }),
        Some("mallory") => Err(Denied::Forbidden),
        Some("weak") => Err(Denied::InsufficientScope { challenge: WEAK.into() }),
        Some("early") => Err(Denied::Unavailable { retry_after: EARLY }),
        Some(name) => Ok(Principal::new(name)),
    }
}

/// Opens a session as the named principal and returns the session id.
pub(crate) async fn open_as(host: &Host, name: &str) -> String {
    let request = Http::to(host).post(&session::initialize(session::REVISION));
    let reply = request.header("Authorization", &format!("Bearer {name}")).send().await;
    reply.header("mcp-session-id").expect("a session id").to_owned()
}
