//! Heads of requests: media types, verbs, hosts, origins, versions, sizes.

use super::row::{CALL, Framing, Row, bare, delete, get, post};

const MEDIA: &[(&str, &str, Result<(), &str>)] = &[
    ("content-type", "text/plain", Err("application/json")),
    ("content-type", "application/jsonx", Err("application/json")),
    ("content-type", "application/json; charset=latin1", Err("application/json")),
    ("content-type", "application/json; charset=utf-16", Err("application/json")),
    ("content-type", "application/x-www-form-urlencoded", Err("application/json")),
    ("content-type", "multipart/form-data; boundary=application/json", Err("application/json")),
    ("content-type", "text/event-stream, application/json", Err("application/json")),
    ("content-type", "", Err("application/json")),
    ("content-type", "Application/JSON; Charset=\"UTF-8\"", Ok(())),
    ("content-type", "application/json;profile=x", Ok(())),
    ("accept", "application/json", Err("text/event-stream")),
    ("accept", "text/event-stream", Err("application/json")),
    ("accept", "text/html", Err("both")),
    ("accept", "", Err("both")),
    ("accept", "application/json;q=0, text/event-stream", Err("both")),
    ("accept", "application/json, text/event-stream;q=0.000", Err("both")),
    ("accept", "application/jsonp, text/event-streams", Err("both")),
    ("accept", "application/json; text/event-stream", Err("both")),
    ("accept", "*/*", Ok(())),
    ("accept", "application/*, text/*;q=0.1", Ok(())),
    ("accept", "TEXT/EVENT-STREAM;q=1.0,APPLICATION/JSON;q=0.1", Ok(())),
];

const HOSTS: &[(&str, u16)] = &[
    ("evil.example.com", 403),
    ("localhost.evil.com", 403),
    ("localhost.evil.com:80", 403),
    ("127.0.0.1.nip.io", 403),
    ("localhost@evil.com", 403),
    ("evil.com@localhost", 403),
    ("localhost:80@evil.com", 403),
    ("localhost:evil", 403),
    ("localhost:80:80", 403),
    ("localhost:", 403),
    ("localhost, evil.com", 403),
    ("[::1].evil.com", 403),
    ("[::2]", 403),
    ("::1", 403),
    ("0.0.0.0", 403),
    ("0x7f.1", 403),
    ("2130706433", 403),
    ("null", 403),
    ("", 403),
];

const GOOD_HOSTS: &[&str] = &["LocalHost", "localhost:1", "127.0.0.1:7411", "[::1]:7411"];

const ORIGINS: &[&str] = &[
    "http://evil.example.com",
    "https://localhost.evil.com",
    "http://127.0.0.1.evil.com:80",
    "http://localhost@evil.com",
    "http://evil.com#localhost",
    "http://evil.com/localhost",
    "http://localhost/",
    "http://localhost:80/path",
    "http://evil.com://localhost",
    "http://user:1@localhost.evil.com",
    "http://user@localhost",
    "http://localhost http://evil.com",
    "http://0.0.0.0",
    "http://[::1]evil.com",
    "file://",
    "null",
    "NULL",
    "",
];

const GOOD_ORIGINS: &[&str] = &["http://localhost:3000", "https://127.0.0.1", "http://[::1]:80"];

const VERSIONS: &[(&str, &str)] = &[
    ("a version of nonsense", "banana"),
    ("a version that is empty", ""),
    ("a version that is gone", "2024-11-05"),
    ("a version that never was", "2025-06-19"),
    ("a version with more behind it", "2025-11-25x"),
    ("a version with a word before it", "v2025-11-25"),
    ("two versions in one", "2025-11-25, 2025-06-18"),
    ("a version that only looks like a date", "9999-99-9x"),
];

pub(crate) fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = MEDIA
        .iter()
        .map(|(header, value, fine)| match (fine, *header) {
            (Ok(()), _) => post("a good media type").set(header, value).served("1"),
            (Err(says), "accept") => post("a bad Accept").set(header, value).refused(406, -32600, says),
            (Err(says), _) => post("a bad Content-Type").set(header, value).refused(415, -32600, says),
        })
        .collect();
    rows.extend(
        HOSTS
            .iter()
            .map(|(host, status)| post("an evil Host").set("host", host).refused(*status, -32600, "Host")),
    );
    rows.extend(GOOD_HOSTS.iter().map(|host| post("a good Host").set("host", host).served("1")));
    rows.extend(
        ORIGINS
            .iter()
            .map(|origin| post("an evil Origin").set("origin", origin).refused(403, -32600, "Origin")),
    );
    rows.extend(GOOD_ORIGINS.iter().map(|origin| post("a good Origin").set("origin", origin).served("1")));
    for (name, version) in VERSIONS {
        let says = "Supported: 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28.";
        rows.push(post(name).set("mcp-protocol-version", version).refused_id("1", 400, -32600, says));
        rows.push(get(name).set("mcp-protocol-version", version).refused(400, -32600, says));
        rows.push(delete(name).set("mcp-protocol-version", version).refused(400, -32600, says));
    }
    rows.extend(once());
    rows.extend(verbs());
    rows.extend(sizes());
    rows
}

/// Headers that are missing, doubled or unreadable.
fn once() -> Vec<Row> {
    vec![
        post("no Content-Type").without("content-type").refused(415, -32600, "application/json"),
        post("two Content-Types").add("content-type", "application/json").refused(
            400,
            -32600,
            "content-type",
        ),
        post("a Content-Type beyond ASCII").set("content-type", b"application/json\xff").refused(
            400,
            -32600,
            "content-type",
        ),
        post("no Accept").without("accept").refused(406, -32600, "Accept"),
        post("two Accepts that do together")
            .set("accept", "application/json")
            .add("accept", "text/event-stream")
            .served("1"),
        post("an Accept beyond ASCII").set("accept", b"*/*\xff").refused(406, -32600, "Accept"),
        get("GET that accepts JSON only").set("accept", "application/json").refused(
            406,
            -32600,
            "text/event-stream",
        ),
        get("GET without Accept").without("accept").refused(406, -32600, "text/event-stream"),
        get("GET that refuses streams").set("accept", "text/event-stream;q=0").refused(
            406,
            -32600,
            "text/event-stream",
        ),
        post("no Host").without("host").refused(400, -32600, "Host"),
        post("two Hosts").add("host", "localhost").refused(400, -32600, "Host"),
        post("a good Host and an evil one").add("host", "evil.com").refused(400, -32600, "Host"),
        post("a Host beyond ASCII").set("host", b"localh\xf6st").refused(400, -32600, "Host"),
        post("an evil host in the request line").target("http://evil.com/mcp").refused(403, -32600, "Host"),
        post("two Origins")
            .set("origin", "http://localhost")
            .add("origin", "http://evil.com")
            .refused(403, -32600, "Origin"),
        post("an Origin beyond ASCII").set("origin", b"http://localhost\xff").refused(403, -32600, "Origin"),
        get("GET from an evil page").set("origin", "http://evil.com").refused(403, -32600, "Origin"),
        delete("DELETE from an evil page").set("origin", "http://evil.com").refused(403, -32600, "Origin"),
        post("two versions").add("mcp-protocol-version", "2025-11-25").refused_id(
            "1",
            400,
            -32600,
            "more than once",
        ),
        post("a version beyond ASCII").set("mcp-protocol-version", b"2025-11-25\xff").refused_id(
            "1",
            400,
            -32600,
            "mcp-protocol-version",
        ),
        post("no version: the session knows").without("mcp-protocol-version").served("1"),
        post("no credentials").set("authorization", "Bearer expired").refused(401, -32600, "credentials"),
        post("no credentials, and nonsense").set("authorization", "Bearer expired").body("{").refused(
            401,
            -32600,
            "credentials",
        ),
        get("GET without credentials").set("authorization", "Bearer expired").refused(
            401,
            -32600,
            "credentials",
        ),
        delete("DELETE without credentials").set("authorization", "Bearer expired").refused(
            401,
            -32600,
            "credentials",
        ),
        post("credentials that are not enough").set("authorization", "Bearer mallory").refused(
            403,
            -32600,
            "credentials",
        ),
        post("a scope is missing").set("authorization", "Bearer weak").refused(403, -32600, "credentials"),
        get("GET, and a scope is missing").set("authorization", "Bearer weak").refused(
            403,
            -32600,
            "credentials",
        ),
        post("POST, and the identity cannot be checked")
            .set("authorization", "Bearer early")
            .body("{")
            .refused(503, -32603, "Try again later"),
        delete("DELETE, and the identity cannot be checked").set("authorization", "Bearer early").refused(
            503,
            -32603,
            "Try again later",
        ),
    ]
}

fn verbs() -> Vec<Row> {
    let with_body = |verb| bare("a verb that is not served", verb).body(CALL);
    let mut rows: Vec<Row> = ["PUT", "PATCH", "OPTIONS", "TRACE", "post", "FROBNICATE"]
        .into_iter()
        .map(|verb| with_body(verb).refused(405, -32600, "POST, GET and DELETE"))
        .collect();
    rows.push(bare("HEAD has no body", "HEAD").unheard(405));
    rows.push(bare("CONNECT", "CONNECT").target("localhost:80").refused(405, -32600, "POST, GET and DELETE"));
    rows.push(with_body("OPTIONS").set("authorization", "Bearer expired").refused(
        405,
        -32600,
        "POST, GET and DELETE",
    ));
    rows.push(with_body("PUT").set("host", "evil.com").refused(403, -32600, "Host"));
    rows
}

/// The endpoint of this test takes bodies of 64 KiB and heads of 32 KiB.
fn sizes() -> Vec<Row> {
    let fill = |bytes: usize| format!("{CALL}{}", " ".repeat(bytes - CALL.len()));
    let mut crowd = post("more headers than the HTTP library takes");
    for _ in 0..110 {
        crowd = crowd.add("x-crowd", "1");
    }
    vec![
        post("a body at the limit").body(fill(64 << 10)).served("1"),
        post("a body over the limit").body(fill((64 << 10) + 1)).refused(413, -32600, "max_request_bytes"),
        post("a length over the limit, and no body").body("").framing(Framing::Announced(1 << 30)).refused(
            413,
            -32600,
            "max_request_bytes",
        ),
        post("a length beyond all numbers")
            .body("")
            .framing(Framing::None)
            .set("content-length", "99999999999999999999")
            .unheard(400),
        post("two lengths").add("content-length", "5").unheard(400),
        post("a chunked body at the limit").body(fill(64 << 10)).framing(Framing::Chunked).served("1"),
        post("a chunked body over the limit").body(fill(200 << 10)).framing(Framing::Chunked).refused(
            413,
            -32600,
            "max_request_bytes",
        ),
        post("a chunk of nonsense")
            .body("zz\r\n")
            .framing(Framing::None)
            .set("transfer-encoding", "chunked")
            .refused(400, -32600, "could not be read"),
        post("a length beside chunks counts for nothing")
            .framing(Framing::Chunked)
            .add("content-length", "5")
            .served("1"),
        post("a long header").set("x-long", "x".repeat(32 << 10)).refused(
            431,
            -32600,
            "The headers are larger than",
        ),
        get("a long header on GET").set("x-long", "x".repeat(32 << 10)).refused(
            431,
            -32600,
            "The headers are larger than",
        ),
        post("a long session id").set("mcp-session-id", "x".repeat(30 << 10)).refused_id(
            "1",
            404,
            -32600,
            "initialize",
        ),
        post("a head beyond the HTTP library").set("x-long", "x".repeat(1 << 20)).unheard(431),
        crowd.unheard(431),
    ]
}
