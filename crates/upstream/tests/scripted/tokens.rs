//! Access tokens that are refreshed while a session lives, and tokens of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steadfast_engine::{Principal, SessionId};
use steadfast_upstream::Credential;

use crate::support::server::{Reply, Request, Server};
use crate::support::session::{REVISION, initialize, said, tool_call};
use crate::support::{self, Backing, Host, Http, Session, Value, json};

crate::on_every_store!(
    a_day_of_tokens_that_live_six_minutes_loses_no_session_and_no_answer,
    a_token_of_another_subject_gets_nothing,
    a_server_that_accepts_anything_admits_no_other_token,
    an_anonymous_session_admits_no_token,
);

/// How long a token is valid, in minutes.
const LIFETIME: u64 = 6;

/// The minutes that have passed, as the server and the issuer of tokens know them.
type Minutes = Arc<AtomicU64>;

fn base64(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = String::new();
    for group in text.as_bytes().chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..=group.len() {
            out.push(char::from(ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    out
}

/// The signature of the issuer, as far as this test is concerned.
fn signature(signed: &str) -> String {
    SessionId::derived("a key that only the issuer has", &[signed.as_bytes()]).text()
}

/// Returns what is signed in a token.
fn claims(change: &[(&str, Value)], minutes: u64) -> String {
    let mut claims = json!({"iss": "https://id.example", "sub": "alice", "aud": "mcp", "client_id": "app"});
    claims["exp"] = (minutes + LIFETIME).into();
    for (name, value) in change {
        claims[*name] = value.clone();
    }
    format!("{}.{}", base64(r#"{"alg":"ES256"}"#), base64(&claims.to_string()))
}

fn token(change: &[(&str, Value)], minutes: u64) -> String {
    let signed = claims(change, minutes);
    format!("Bearer {signed}.{}", signature(&signed))
}

/// Returns true if the issuer has signed the token and it has not expired.
fn is_valid(header: &str, minutes: u64) -> bool {
    let Some((signed, of)) = header.strip_prefix("Bearer ").and_then(|token| token.rsplit_once('.')) else {
        return false;
    };
    (0..=LIFETIME).any(|age| {
        let is_issued =
            |change: &[(&str, Value)]| claims(change, (minutes + 1).saturating_sub(age)) == signed;
        is_issued(&[]) || is_issued(&[("sub", "mallory".into())]) || is_issued(&[("aud", "other".into())])
    }) && of == signature(signed)
}

#[derive(Clone, Copy, PartialEq)]
enum Verifies {
    Tokens,
    Nothing,
}

async fn server(verifies: Verifies, minutes: &Minutes) -> Server {
    let minutes = Arc::clone(minutes);
    Server::with_sessions(move |request| {
        let now = minutes.load(Ordering::SeqCst);
        let is_fine = request.header("authorization").is_some_and(|token| is_valid(token, now));
        if verifies == Verifies::Tokens && !is_fine {
            return Some(Reply::new(401, "www-authenticate: Bearer\r\n", ""));
        }
        let text = json!({"content": [{"type": "text", "text": request.body["params"]["name"]}]});
        (request.method() == "tools/call").then(|| Reply::result(request, &text))
    })
    .await
}

async fn gateway(backing: Backing, server: &Server) -> Host {
    Host::before(backing, [server.url()], |mut builder| {
        builder.http.principal = Arc::new(|parts: &http::request::Parts| {
            // As with `auth = "forward"`, but for the hash.
            let sent = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
            Ok(sent.map_or_else(Principal::anonymous, |sent| Principal::new(format!("sha256:{sent}"))))
        });
        builder.upstream(|config| config.credential = Credential::Forwarded)
    })
    .await
}

async fn open(host: &Host, token: Option<&str>) -> Session {
    let http = Http::to(host);
    let request = shown(http.post(&initialize(REVISION)), token);
    let reply = request.send().await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let id = reply.header("mcp-session-id").expect("a session id").to_owned();
    Session { http, id, revision: REVISION.to_owned() }
}

fn shown(request: support::Request, token: Option<&str>) -> support::Request {
    match token {
        Some(token) => request.header("Authorization", token),
        None => request,
    }
}

async fn a_day_of_tokens_that_live_six_minutes_loses_no_session_and_no_answer(backing: Backing) {
    let minutes = Minutes::default();
    let server = server(Verifies::Tokens, &minutes).await;
    let mut host = gateway(backing, &server).await;
    let opened = open(&host, Some(&token(&[], 0))).await;
    for step in 1..=240u64 {
        let session = opened.via(&host);
        let old = token(&[], minutes.load(Ordering::SeqCst));
        // The answer to this call is read with the next token.
        let call = session.post(&tool_call(step, "unread", json!({})));
        let mut stream = shown(call, Some(&old)).stream().await;
        let start = stream.next().await.and_then(|frame| frame.id).expect("a priming event");
        stream.cut();
        server.until("the call", |log| log.iter().filter(|r| r.calls("unread")).count() as u64 == step).await;
        minutes.fetch_add(LIFETIME, Ordering::SeqCst);
        host.clock.advance(Duration::from_secs(60 * LIFETIME / 2));
        if backing.keeps() && step % 60 == 0 {
            host.restart().await;
        }
        let session = opened.via(&host);
        let new = token(&[], minutes.load(Ordering::SeqCst));
        let resumed = shown(session.resume(&start), Some(&new)).send().await;
        assert_eq!(said(&resumed.answer()), "unread", "step {step}");
        let called = shown(session.tool(1_000_000 + step, "now", json!({})), Some(&new)).send().await;
        assert_eq!(said(&called.answer()), "now", "step {step}");
        host.sweep_after(Duration::from_secs(60 * LIFETIME / 2)).await;
    }
    assert_eq!(server.count(|request| request.method() == "initialize"), 1);
}

/// Checks that requests with this token are answered like those for a session that does not exist.
async fn gets_nothing(host: &Host, session: &Session, start: &str, token: Option<&str>, who: &str) {
    let unknown = Session { id: "A".repeat(32), ..session.clone() };
    for (verb, at) in [("call", session), ("resume", session), ("delete", session)] {
        let request = |at: &Session| match verb {
            "call" => at.tool(77, "now", json!({})),
            "resume" => at.resume(start),
            _ => at.delete(),
        };
        let refused = shown(request(at), token).send().await;
        let expected = shown(request(&unknown), token).send().await;
        assert_eq!((refused.status, refused.text()), (404, expected.text()), "{verb} with {who}");
    }
    let _ = host;
}

async fn a_token_of_another_subject_gets_nothing(backing: Backing) {
    let minutes = Minutes::default();
    let server = server(Verifies::Tokens, &minutes).await;
    let host = gateway(backing, &server).await;
    let alice = token(&[], 0);
    let session = open(&host, Some(&alice)).await;
    let reply = shown(session.tool(1, "secret", json!({})), Some(&alice)).send().await;
    let start = reply.frames().first().and_then(|frame| frame.id.clone()).expect("a priming event");
    // The server is known to verify signatures.
    let refreshed = token(&[], 1);
    assert_eq!(
        said(&shown(session.tool(2, "now", json!({})), Some(&refreshed)).send().await.answer()),
        "now"
    );
    let signed = claims(&[], 2);
    let mallory = token(&[("sub", "mallory".into())], 1);
    let attempts = [
        ("a valid token of another subject", Some(mallory.clone())),
        ("a token for another audience", Some(token(&[("aud", "other".into())], 1))),
        ("a forged token", Some(format!("Bearer {signed}.{}", signature("another key")))),
        ("the signature of another token", Some(format!("Bearer {signed}.{}", signature(&claims(&[], 1))))),
        ("an unsigned token", Some(format!("Bearer {signed}."))),
        (
            "a token that says it needs no signature",
            Some(format!("Bearer {}.{}.x", base64(r#"{"alg":"none"}"#), signed.split('.').nth(1).unwrap())),
        ),
        ("an opaque token", Some("Bearer opaque".to_owned())),
        ("no token", None),
    ];
    for (who, token) in &attempts {
        gets_nothing(&host, &session, &start, token.as_deref(), who).await;
    }
    let is_mallorys = |r: &Request| r.header("authorization") == Some(&mallory);
    assert_eq!(server.count(is_mallorys), 0, "the claims alone decide that");
    assert_eq!(
        said(&shown(session.tool(3, "now", json!({})), Some(&refreshed)).send().await.answer()),
        "now"
    );
}

async fn a_server_that_accepts_anything_admits_no_other_token(backing: Backing) {
    let minutes = Minutes::default();
    let server = server(Verifies::Nothing, &minutes).await;
    let host = gateway(backing, &server).await;
    let alice = token(&[], 0);
    let session = open(&host, Some(&alice)).await;
    let reply = shown(session.tool(1, "secret", json!({})), Some(&alice)).send().await;
    let start = reply.frames().first().and_then(|frame| frame.id.clone()).expect("a priming event");
    let forged = format!("Bearer {}.{}", claims(&[], 1), signature("another key"));
    gets_nothing(&host, &session, &start, Some(&forged), "a forged token").await;
    gets_nothing(&host, &session, &start, Some(&token(&[], 1)), "a refreshed token").await;
    assert_eq!(said(&shown(session.tool(3, "now", json!({})), Some(&alice)).send().await.answer()), "now");
}

async fn an_anonymous_session_admits_no_token(backing: Backing) {
    let minutes = Minutes::default();
    let server = server(Verifies::Nothing, &minutes).await;
    let host = gateway(backing, &server).await;
    let session = open(&host, None).await;
    let reply = session.tool(1, "secret", json!({})).send().await;
    let start = reply.frames().first().and_then(|frame| frame.id.clone()).expect("a priming event");
    gets_nothing(&host, &session, &start, Some(&token(&[], 0)), "a token").await;
}
