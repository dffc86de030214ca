//! Session ids cannot be guessed, and no log contains one.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::world::principal;
use crate::support::{Backing, Host, Http, Session, session};

const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Ten thousand ids, all different, of the alphabet that headers can carry, and random in every
/// place: a fair source leaves no bit of 192 on one side for so long.
#[tokio::test]
async fn ids_are_random() {
    let host = Host::plain(Backing::Memory).await;
    let mut line = Http::to(&host).line().await;
    let open = Http::to(&host).post(&session::initialize(session::REVISION));
    let mut seen = HashSet::new();
    let mut ones = [0u32; 192];
    for _ in 0..10_000 {
        let id = line.send(&open).await.header("mcp-session-id").expect("a session id").to_owned();
        assert_eq!(id.len(), 32, "{id}");
        for (letter, ones) in id.chars().zip(ones.chunks_exact_mut(6)) {
            let value = ALPHABET.find(letter).unwrap_or_else(|| panic!("{id}"));
            for (i, count) in ones.iter_mut().enumerate() {
                *count += u32::from(value >> i & 1 == 1);
            }
        }
        assert!(seen.insert(id), "an id came twice");
    }
    // Nine standard deviations of a fair coin.
    assert!(ones.iter().all(|count| (4_550..=5_450).contains(count)), "{ones:?}");
}

/// The life of a session, with everything going wrong, on both stores, and every log line of every
/// library.
#[test]
fn ids_are_in_no_log() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).expect("no other subscriber in this process");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for backing in [Backing::Memory, Backing::Sqlite] {
        let id = runtime.block_on(live_and_die(backing));
        let text = log.0.lock().expect("the lock is not poisoned").clone();
        assert!(text.contains("refused") && text.contains("panicked"), "the log was kept");
        assert!(!text.contains(&id), "in clear: {}", around(&text, &id));
        assert!(!text.contains(&id[8..24]), "in part: {}", around(&text, &id[8..24]));
        assert!(!text.contains("s3cret"), "a token: {}", around(&text, "s3cret"));
    }
}

async fn live_and_die(backing: Backing) -> String {
    let mut host = Host::start(backing, |builder| builder.principal(principal)).await;
    let session = Session::open(&host).await;
    let token = |request: crate::support::Request| request.header("Cookie", "s3cret");
    token(session.tool(1, "echo", json!({"text": "x"}))).send().await;
    token(session.tool(2, "panic", json!({}))).send().await;
    token(session.tool(3, "log", json!({"n": 3, "bytes": 5}))).send().await;
    token(session.request(4, "no/such", json!({}))).send().await;
    session.notify("notifications/custom", json!({"x": 1})).await;
    session.cancel("unknown").await;
    session.answer(&json!("ask-9"), json!({})).await;
    session.call(5, "whoami", json!({})).await;
    let mut asking = session.tool(6, "ask", json!({"method": "roots/list"})).stream().await;
    asking.message().await;
    session.answer(&json!("ask-0"), json!({"roots": []})).await;
    asking.rest().await;
    session.resume("banana").send().await;
    session.listen().stream().await.cut();
    session.tool(7, "never", json!({})).stream().await.cut();
    host.gates.reached("never", 1).await;
    session.tool(7, "echo", json!({})).send().await;
    session.listen().header("Authorization", "Bearer bob").send().await;
    session.delete().header("Origin", "http://evil.com").send().await;
    if backing == Backing::Sqlite {
        host.restart().await;
    }
    let session = session.via(&host);
    session.call(8, "echo", json!({})).await;
    assert_eq!(session.delete().send().await.status, 204);
    session.tool(9, "echo", json!({})).send().await;
    host.stop().await;
    session.id
}

/// What a type shows of itself is not the id either.
#[tokio::test]
async fn ids_are_in_no_debug_output() {
    let heard = Arc::new(Mutex::new(String::new()));
    let ear = Arc::clone(&heard);
    let closed = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&closed);
    let host = Host::start(Backing::Memory, move |builder| {
        let (ear, eye) = (Arc::clone(&ear), Arc::clone(&ear));
        let told = Arc::clone(&told);
        let builder = builder.on_session_event(move |event| {
            let _ = write!(ear.lock().expect("the lock is not poisoned"), "{event:?}");
            if let steadfast::SessionEventKind::Closed(_) = event.kind {
                told.notify_one();
            }
        });
        // Users' code gets the head of each request, and may well print it.
        builder.principal(move |parts| {
            let _ = write!(eye.lock().expect("the lock is not poisoned"), "{parts:?}");
            principal(parts)
        })
    })
    .await;
    let session = Session::open(&host).await;
    let server = host.server();
    let handle = server.restore(session.session_id()).await.expect("the session is there");
    let endpoint = server.service();
    let live = endpoint.engine().session(session.session_id(), &steadfast::Principal::anonymous()).await;
    let request = ::http::Request::post("/mcp").header("mcp-session-id", &session.id).body(String::new());
    let response = endpoint.handle(request.expect("a request")).await;
    let mut shown =
        format!("{server:?} {handle:?} {:?} {endpoint:?} {live:?} {response:?}", session.session_id());
    session.delete().send().await;
    // Each listener hears on a thread of its own, so it is this one that has to say when it has.
    tokio::time::timeout(Duration::from_secs(10), closed.notified()).await.expect("it hears of the end");
    shown.push_str(&heard.lock().expect("the lock is not poisoned"));
    assert!(shown.contains("mcp-session-id") && shown.contains("Closed"), "both were seen");
    assert!(!shown.contains(&session.id), "{}", around(&shown, &session.id));
}

fn around<'t>(text: &'t str, what: &str) -> &'t str {
    let at = text.find(what).unwrap_or_default();
    let start = text.floor_char_boundary(at.saturating_sub(300));
    &text[start..text.floor_char_boundary(at + 60)]
}

/// A subscriber that writes down everything, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn note(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut dyn Visit)) {
        struct Line(String);
        impl Visit for Line {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                let _ = write!(self.0, " {field}={value:?}");
            }
        }
        let mut line = Line(metadata.target().to_owned());
        record(&mut line);
        line.0.push('\n');
        self.0.lock().expect("the lock is not poisoned").push_str(&line.0);
    }
}

impl Subscriber for Log {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.note(span.metadata(), |line| span.record(line));
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.note(event.metadata(), |line| event.record(line));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
