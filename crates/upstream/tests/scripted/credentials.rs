//! What the server is shown of who calls.

use http::HeaderValue;
use http::header::AUTHORIZATION;
use steadfast_upstream::{Config, Credential, Server as Kind, StartError, Upstream};

use crate::support::server::{Reply, Request, Server};
use crate::support::session::initialize;
use crate::support::{Backing, Host, Http, Session, json};

async fn server() -> Server {
    Server::with_sessions(|r| (r.method() == "tools/call").then(|| Reply::result(r, &json!({})))).await
}

async fn gateway(server: &Server, credential: Credential) -> Host {
    Host::before(Backing::Memory, [server.url()], move |builder| {
        builder.upstream(|config| config.credential = credential.clone())
    })
    .await
}

/// Opens a session and calls, with these headers of the client's.
async fn call(host: &Host, shown: Option<&str>) -> Session {
    let with = |mut request: crate::support::Request| {
        request = request.header("Cookie", "c=cookie-secret").header("X-Api-Key", "key-secret");
        request = request.header("X-Forwarded-For", "10.0.0.1").header("Baggage", "secret=1");
        match shown {
            Some(shown) => request.header("Authorization", shown),
            None => request,
        }
    };
    let reply = with(Http::to(host).post(&initialize("2025-11-25"))).send().await;
    let id = reply.header("mcp-session-id").expect("a session").to_owned();
    let session = Session { http: Http::to(host), id, revision: "2025-11-25".to_owned() };
    with(session.tool(1, "t", json!({}))).send().await.answer();
    session
}

/// The names of every header that the server was sent, and the values of `Authorization`.
fn seen(server: &Server) -> (Vec<String>, Vec<Option<String>>) {
    let log = server.log();
    let mut names: Vec<_> = log.iter().flat_map(|request| request.headers.keys().cloned()).collect();
    names.sort();
    names.dedup();
    (names, log.iter().map(|request| request.header("authorization").map(str::to_owned)).collect())
}

const USUAL: [&str; 6] =
    ["accept", "content-length", "content-type", "host", "mcp-protocol-version", "mcp-session-id"];

#[tokio::test]
async fn nothing_is_shown_unless_it_is_wanted() {
    let server = server().await;
    let host = gateway(&server, Credential::None).await;
    call(&host, Some("Bearer mine")).await;
    let (names, shown) = seen(&server);
    assert_eq!(names, USUAL);
    assert!(shown.iter().all(Option::is_none));
}

#[tokio::test]
async fn the_clients_own_is_passed_on_and_nothing_else_of_it() {
    let server = server().await;
    let host = gateway(&server, Credential::Forwarded).await;
    call(&host, Some("Bearer mine")).await;
    server.until("the GET", |log| log.iter().any(|request| request.verb == "GET")).await;
    let (names, shown) = seen(&server);
    let mut expect = USUAL.to_vec();
    expect.insert(1, "authorization");
    assert_eq!(names, expect);
    assert!(shown.iter().all(|shown| shown.as_deref() == Some("Bearer mine")), "{shown:?}");
    // The gateway forwards a request without credentials without adding any.
    call(&host, None).await;
    assert_eq!(seen(&server).1.last().unwrap(), &None);
}

/// Tokens expire; the client's next one is the server's next one, in everything that is sent from
/// then on.
#[tokio::test]
async fn a_new_token_takes_the_place_of_the_old() {
    let server = server().await;
    let host = gateway(&server, Credential::Forwarded).await;
    let session = call(&host, Some("Bearer old")).await;
    let with = |request: crate::support::Request| request.header("Authorization", "Bearer new");
    with(session.tool(2, "second", json!({}))).send().await.answer();
    let sent = |server: &Server, which: &dyn Fn(&Request) -> bool| {
        let request = server.log().into_iter().rfind(which).unwrap();
        request.header("authorization").map(str::to_owned)
    };
    assert_eq!(sent(&server, &|r| r.calls("second")).as_deref(), Some("Bearer new"));
    with(session.delete()).send().await;
    server.until("the DELETE", |log| log.iter().any(|request| request.verb == "DELETE")).await;
    assert_eq!(sent(&server, &|r| r.verb == "DELETE").as_deref(), Some("Bearer new"));
}

#[tokio::test]
async fn our_own_takes_the_place_of_the_clients() {
    let server = server().await;
    let host = gateway(&server, Credential::Own(HeaderValue::from_static("Bearer ours"))).await;
    call(&host, Some("Bearer mine")).await;
    let (_, shown) = seen(&server);
    assert!(shown.iter().all(|shown| shown.as_deref() == Some("Bearer ours")), "{shown:?}");
}

/// The operator's headers go with every request; the client's own credential goes before one of
/// theirs.
#[tokio::test]
async fn the_operators_headers_go_with_every_request() {
    let server = server().await;
    let host = Host::before(Backing::Memory, [server.url()], |builder| {
        builder.upstream(|config| {
            config.credential = Credential::Forwarded;
            let Kind::Http { headers, .. } = &mut config.server else { panic!("it is HTTP") };
            headers.insert("x-tenant", HeaderValue::from_static("t1"));
            headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer default"));
        })
    })
    .await;
    call(&host, Some("Bearer mine")).await;
    let log = server.log();
    assert!(log.iter().all(|request| request.header("x-tenant") == Some("t1")));
    assert!(log.iter().all(|request| request.header("authorization") == Some("Bearer mine")));
}

#[tokio::test]
async fn an_address_with_a_password_in_it_is_refused() {
    let url = "http://me:password@127.0.0.1:1/mcp".parse().unwrap();
    let error = Upstream::start(Config::http(vec![url])).await.unwrap_err();
    assert_eq!(error, StartError::SecretInAddress);
    assert!(!error.to_string().contains("me:"), "{error}");
}
