//! A server behind TLS, with an authority of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use steadfast_upstream::{Config, Tls, Upstream};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::front::{CALL, Front, INITIALIZE, STATELESS, STATELESS_HEADERS, play, request};
use crate::support::{Age, Secure};

/// A server, and how many requests it got.
async fn serve(age: Age) -> (Secure, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&requests);
    let secure = Secure::listen(age, move |mut stream| {
        let count = Arc::clone(&count);
        async move {
            while let Some((head, body)) = request(&mut stream).await {
                count.fetch_add(1, Ordering::SeqCst);
                // The next request is another connection's.
                let answer = play(&head, &body).replacen("\r\n", "\r\nconnection: close\r\n", 1);
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        }
    })
    .await;
    (secure, requests)
}

/// Much longer than the gateway takes for an error that it reports immediately.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opens a session and gives the headers of its requests.
async fn open(front: &Front) -> String {
    let reply = front.post("", INITIALIZE).await;
    let id = reply.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    format!("mcp-session-id: {}\r\nmcp-protocol-version: 2025-11-25\r\n", id.expect("a session"))
}

#[tokio::test]
async fn sessions_hold_over_tls() {
    let (server, _) = serve(Age::InTime).await;
    let front = Front::start(Config { tls: server.tls(), ..Config::http(vec![server.url("/mcp")]) }).await;
    let session = open(&front).await;
    assert!(front.post(&session, CALL).await.contains(r#""result":{"content":[]}"#));
}

/// A server whose certificate is invalid is reachable, and a retry would not change the
/// certificate: the gateway answers the client with an error immediately.
#[tokio::test]
async fn a_server_that_proves_nothing_is_not_used_and_not_waited_for() {
    let (expired, stranger) = (serve(Age::Over).await, serve(Age::InTime).await);
    for ((server, requests), tls, why) in
        [(&expired, expired.0.tls(), "expired"), (&stranger, Tls::public(), "UnknownIssuer")]
    {
        let config = Config { unavailable_timeout: PATIENCE, tls, ..Config::http(vec![server.url("/mcp")]) };
        let front = Front::start(config).await;
        for (headers, body) in [("", INITIALIZE), (STATELESS_HEADERS, STATELESS)] {
            let begun = Instant::now();
            let reply = front.post(headers, body).await;
            assert!(begun.elapsed() < PATIENCE / 2, "it was waited for");
            assert!(reply.contains("invalid peer certificate") && reply.contains(why), "{why}: {reply}");
            assert!(
                reply.contains(r#""data":{"reason":"upstream_untrusted","retryable":false}"#),
                "{why}: {reply}"
            );
        }
        assert_eq!(requests.load(Ordering::SeqCst), 0, "nothing was sent");
    }
}

/// One replica with a bad certificate is passed over, in whatever order they are.
#[tokio::test]
async fn a_replica_that_proves_nothing_is_passed_over() {
    let (bad, good) = (serve(Age::Over).await, serve(Age::InTime).await);
    let (bad_url, good_url) = (bad.0.url("/mcp"), good.0.url("/mcp"));
    for urls in [vec![bad_url.clone(), good_url.clone()], vec![good_url, bad_url]] {
        let front = Front::start(Config { tls: good.0.tls(), ..Config::http(urls) }).await;
        let session = open(&front).await;
        assert!(front.post(&session, CALL).await.contains(r#""result":{"content":[]}"#));
        assert!(front.post(STATELESS_HEADERS, STATELESS).await.contains(r#""result":{"content":[]}"#));
    }
    assert_eq!(bad.1.load(Ordering::SeqCst), 0);
}

/// If one replica is away and another not to be trusted, the one that is away is waited for.
#[tokio::test]
async fn a_replica_that_is_away_may_come_back() {
    let bad = serve(Age::Over).await;
    let absent = "https://127.0.0.1:1/mcp".parse::<http::Uri>().unwrap();
    let patience = Duration::from_millis(200);
    for urls in [vec![bad.0.url("/mcp"), absent.clone()], vec![absent, bad.0.url("/mcp")]] {
        let front =
            Front::start(Config { unavailable_timeout: patience, tls: bad.0.tls(), ..Config::http(urls) })
                .await;
        for (headers, body) in [("", INITIALIZE), (STATELESS_HEADERS, STATELESS)] {
            let begun = Instant::now();
            let reply = front.post(headers, body).await;
            assert!(begun.elapsed() >= patience, "it was not waited for");
            assert!(reply.contains("upstream_unavailable"), "{reply}");
        }
    }
}

/// A server that accepts connections and then fails every TLS handshake counts as unavailable: the
/// gateway waits for it until `unavailable_timeout`.
#[tokio::test]
async fn a_server_that_fails_every_handshake_is_away() {
    let (server, requests) = serve(Age::InTime).await;
    let mut config = Config { tls: server.tls(), ..Config::http(vec![server.url("/mcp")]) };
    (config.standalone, config.unavailable_timeout) = (false, Duration::from_millis(300));
    let front = Front::start(config).await;
    let session = open(&front).await;
    server.be_rude();
    let (before, sent) = (server.hellos(), requests.load(Ordering::SeqCst));
    let begun = Instant::now();
    let reply = front.post(&session, CALL).await;
    assert!(begun.elapsed() >= Duration::from_millis(300), "it was not waited for");
    assert!(reply.contains("upstream_unavailable"), "{reply}");
    assert!(server.hellos() - before > 2, "it was not looked for");
    assert_eq!(requests.load(Ordering::SeqCst), sent);
}

/// Before a server: once it is moody, it closes every other connection, beginning with the next.
struct Moody {
    address: std::net::SocketAddr,
    is_moody: Arc<AtomicBool>,
    /// Connections since then.
    connections: Arc<AtomicUsize>,
}

impl Moody {
    async fn before(target: http::Uri) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let moody = Self {
            address: listener.local_addr().unwrap(),
            is_moody: Arc::default(),
            connections: Arc::default(),
        };
        let (is_moody, connections) = (Arc::clone(&moody.is_moody), Arc::clone(&moody.connections));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                if is_moody.load(Ordering::SeqCst) && connections.fetch_add(1, Ordering::SeqCst) % 2 == 0 {
                    continue;
                }
                let target = (target.host().unwrap().to_owned(), target.port_u16().unwrap());
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(target).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        moody
    }
}

/// A server that is there whenever it is looked for, and away for each call: a call is not tried
/// for ever.
#[tokio::test]
async fn a_call_is_tried_so_often_and_no_more() {
    let (server, requests) = serve(Age::InTime).await;
    let moody = Moody::before(server.url("/mcp")).await;
    let url = format!("https://localhost:{}/mcp", moody.address.port()).parse().unwrap();
    let mut config = Config { tls: server.tls(), ..Config::http(vec![url]) };
    config.standalone = false;
    let front = Front::start(config).await;
    let session = open(&front).await;
    let sent = requests.load(Ordering::SeqCst);
    moody.is_moody.store(true, Ordering::SeqCst);
    let reply = front.post(&session, CALL).await;
    assert!(reply.contains("upstream_unavailable"), "{reply}");
    assert_eq!(moody.connections.load(Ordering::SeqCst), 7, "four calls, and three looks between them");
    assert_eq!(requests.load(Ordering::SeqCst) - sent, 3, "the looks");
}

#[tokio::test]
async fn other_schemes_are_refused() {
    for url in ["ftp://localhost/", "ws://localhost/", "/mcp"] {
        let config = Config::http(vec![url.parse().unwrap()]);
        let error = Upstream::start(config).await.unwrap_err().to_string();
        assert!(error.starts_with(url), "{error}");
    }
}
