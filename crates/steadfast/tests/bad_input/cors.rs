//! Web pages: those of a served origin may ask and read, all others are told nothing.

use serde_json::json;
use steadfast::Origins;

use super::world::principal;
use crate::support::{Backing, Host, Http, Reply, Request, Session, session};

const APP: &str = "https://app.example.com";
const SENT: &str = "Content-Type, Accept, Authorization, Mcp-Session-Id, MCP-Protocol-Version, Last-Event-ID, Mcp-Method, Mcp-Name";

/// Everything about pages that an answer says.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    status: u16,
    origin: Option<String>,
    vary: Option<String>,
    exposed: Option<String>,
    methods: Option<String>,
    headers: Option<String>,
    max_age: Option<String>,
}

impl Said {
    fn of(reply: &Reply) -> Self {
        let header = |name: &str| reply.header(name).map(str::to_owned);
        Self {
            status: reply.status,
            origin: header("access-control-allow-origin"),
            vary: header("vary"),
            exposed: header("access-control-expose-headers"),
            methods: header("access-control-allow-methods"),
            headers: header("access-control-allow-headers"),
            max_age: header("access-control-max-age"),
        }
    }

    fn nothing(status: u16) -> Self {
        Self { status, origin: None, vary: None, exposed: None, methods: None, headers: None, max_age: None }
    }

    fn to(origin: &str, status: u16) -> Self {
        Self {
            origin: Some(origin.into()),
            vary: Some("Origin".into()),
            exposed: Some("Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After".into()),
            ..Self::nothing(status)
        }
    }

    fn welcome(origin: &str, headers: &str) -> Self {
        Self {
            methods: Some("GET, POST, DELETE, OPTIONS".into()),
            headers: Some(headers.into()),
            max_age: Some("7200".into()),
            ..Self::to(origin, 204)
        }
    }
}

fn preflight(host: &Host, origin: &str) -> Request {
    Http::to(host).request("OPTIONS").header("Origin", origin).header("Access-Control-Request-Method", "POST")
}

async fn host() -> Host {
    let origins = || Origins::LoopbackAnd(vec![APP.into()]);
    Host::start(Backing::Memory, move |builder| builder.origins(origins()).principal(principal)).await
}

async fn check(name: &str, request: Request, expect: Said) {
    let reply = request.send().await;
    assert_eq!(Said::of(&reply), expect, "{name}");
    if expect.status == 204 {
        assert_eq!(reply.text(), "", "{name}");
    }
}

#[tokio::test]
async fn preflights() {
    let host = host().await;
    let asks = |names: &str| preflight(&host, APP).header("Access-Control-Request-Headers", names);
    check("nothing in particular", preflight(&host, APP), Said::welcome(APP, SENT)).await;
    let expired = preflight(&host, APP).header("Authorization", "Bearer expired");
    check("a preflight request needs no credentials", expired, Said::welcome(APP, SENT)).await;
    check(
        "a page of this machine",
        preflight(&host, "http://localhost:3000"),
        Said::welcome("http://localhost:3000", SENT),
    )
    .await;
    check("known headers", asks("content-type, mcp-session-id"), Said::welcome(APP, SENT)).await;
    let with = format!("{SENT}, mcp-param-region, mcp-param-x");
    check("parameters", asks("Mcp-Param-Region,content-type, mcp-param-x"), Said::welcome(APP, &with)).await;
    check("headers of others", asks("x-evil, cookie, mcp-params, x-mcp-param-a"), Said::welcome(APP, SENT))
        .await;
    check("no names of headers", asks("mcp-param-a b, mcp-param-é, ,,"), Said::welcome(APP, SENT)).await;
    for evil in
        ["https://evil.example.com", "https://app.example.com.evil.com", "null", "http://app.example.com"]
    {
        check(evil, preflight(&host, evil), Said::nothing(403)).await;
    }
    check("two origins", preflight(&host, APP).also("Origin", "http://evil.com"), Said::nothing(403)).await;
    check("an evil host", preflight(&host, APP).header("Host", "evil.com"), Said::to(APP, 403)).await;
    let not_asked = preflight(&host, APP).without("Access-Control-Request-Method");
    check("OPTIONS of a page that asks nothing", not_asked, Said::to(APP, 405)).await;
    check("OPTIONS of no page", Http::to(&host).request("OPTIONS"), Said::nothing(405)).await;
    let no_page = preflight(&host, APP).without("Origin");
    check("a preflight of no page", no_page, Said::nothing(405)).await;
}

#[tokio::test]
async fn answers() {
    let host = host().await;
    let session = Session::open(&host).await;
    let page = |request: Request| request.header("Origin", APP);
    let evil = |request: Request| request.header("Origin", "https://evil.example.com");
    let open = || Http::to(&host).post(&session::initialize(session::REVISION));
    check("initialize", page(open()), Said::to(APP, 200)).await;
    check("initialize of no page", open(), Said::nothing(200)).await;
    check("initialize of an evil page", evil(open()), Said::nothing(403)).await;
    let call = || session.tool(1, "echo", json!({"text": "x"}));
    check("a call", page(call()), Said::to(APP, 200)).await;
    check("a call of no page", call(), Said::nothing(200)).await;
    check("a call of an evil page", evil(call()), Said::nothing(403)).await;
    check("a refusal", page(call()).header("Mcp-Session-Id", "unknown"), Said::to(APP, 404)).await;
    check("bad media", page(call()).header("Content-Type", "text/plain"), Said::to(APP, 415)).await;
    check("no credentials", page(call()).header("Authorization", "Bearer expired"), Said::to(APP, 401)).await;
    check("an unknown verb", page(Http::to(&host).request("PATCH")), Said::to(APP, 405)).await;
    check("DELETE", page(session.delete()), Said::to(APP, 204)).await;
}
