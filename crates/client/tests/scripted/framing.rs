//! Responses in every framing that servers use, and in some that no server should use.

use steadfast_client::{Answer, Effect, Era, Error, Limits, Revision};

use crate::support::{Reply, Request, Server, call, config, connect};

const ANSWER: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"ok": true}}"#;

/// How the bytes of a body arrive.
#[derive(Clone, Copy, Debug)]
enum Pieces {
    One,
    Bytes,
    Chunked,
}

/// `$ANSWER` and `$ID` in a body stand for the answer and its id.
async fn answer_to(
    status: u16,
    kind: &str,
    body: &str,
    pieces: Pieces,
    revision: Revision,
) -> Result<Answer, Error> {
    let (kind, body) = (kind.to_owned(), body.replace("$ANSWER", ANSWER));
    let script = move |request: &Request| {
        let id = request.body["id"].to_string();
        let body = body.replace("$ID", &id);
        let head = format!("HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\n");
        request.calls("t").then(|| match pieces {
            Pieces::One => Reply::default().send(&format!("{head}\r\n{body}")),
            Pieces::Bytes => Reply::default().drip(&format!("{head}\r\n{body}")),
            Pieces::Chunked => {
                let head = format!("{head}transfer-encoding: chunked\r\n\r\n");
                let pieces =
                    body.as_bytes().chunks(3).map(|piece| String::from_utf8_lossy(piece).into_owned());
                pieces
                    .fold(Reply::default().send(&head), |reply, piece| reply.chunk(&piece))
                    .send("0\r\n\r\n")
            }
        })
    };
    let server = Server::with_sessions(script).await;
    let mut config = config(&server);
    config.era = Era::Session(revision);
    config.limits =
        Limits { line_bytes: 500, event_bytes: 700, body_bytes: 600, batch: 3, ..Limits::default() };
    let client = connect(config, ()).await;
    let answer = call(&client, "t").await;
    // The client sends the call once. Only after a 404, which means that the server has not
    // executed it, the client sends it again.
    let expect = if status == 404 && answer.is_err() { 2 } else { 1 };
    assert_eq!(server.count(|request| request.calls("t")), expect);
    answer
}

async fn check_ok(kind: &str, body: &str) {
    for pieces in [Pieces::One, Pieces::Bytes, Pieces::Chunked] {
        let answer = answer_to(200, kind, body, pieces, Revision::V2025_11_25).await;
        assert_eq!(answer, Ok(Answer::Result(r#"{"ok": true}"#.into())), "{body:?} in {pieces:?}");
    }
}

#[tokio::test]
async fn answers_are_read_in_every_framing() {
    let sse = "text/event-stream";
    check_ok("application/json", "$ANSWER").await;
    check_ok("Application/JSON; charset=utf-8", " \n$ANSWER\r\n").await;
    check_ok(sse, "event: message\ndata: $ANSWER\n\n").await;
    check_ok("Text/Event-Stream; charset=utf-8", "data: $ANSWER\n\n").await;
    check_ok(sse, "data:$ANSWER\n\n").await;
    check_ok(sse, "\u{feff}data: $ANSWER\n\n").await;
    check_ok(sse, ": hello\n\n:\n\ndata: $ANSWER\n\n").await;
    check_ok(sse, "event: message\r\nid: 1\r\ndata: $ANSWER\r\n\r\n").await;
    check_ok(sse, "data: $ANSWER\r\r").await;
    check_ok(sse, "data: $ANSWER\nid: 5\nretry: 1\nevent: message\n\n").await;
    check_ok(sse, "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":$ID,\ndata:\"result\":{\"ok\": true}}\n\n")
        .await;
    check_ok(sse, "id: 0\nretry: 3000\ndata:\n\ndata: $ANSWER\n\n").await;
    check_ok(sse, "event: ping\ndata: not json\n\nunknown: 1\ndata: $ANSWER\n\n").await;
    check_ok(sse, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\ndata: $ANSWER\n\n")
        .await;
    check_ok(sse, "data: {\"jsonrpc\":\"2.0\",\"id\":999,\"result\":{}}\n\ndata: $ANSWER\n\n").await;
    // Data after the answer is ignored.
    check_ok(sse, "data: $ANSWER\n\ndata: rubbish\n\n").await;
}

#[tokio::test]
async fn batches_are_read_in_every_revision_with_sessions() {
    let body = r#"[{"jsonrpc":"2.0","method":"notifications/message"},$ANSWER]"#;
    let sse = format!("data: {body}\n\n");
    for (kind, body) in [("application/json", body), ("text/event-stream", &sse)] {
        for revision in [Revision::V2025_03_26, Revision::V2025_06_18, Revision::V2025_11_25] {
            let answer = answer_to(200, kind, body, Pieces::One, revision).await;
            assert_eq!(answer, Ok(Answer::Result(r#"{"ok": true}"#.into())), "{revision}");
        }
    }
}

async fn check_error(status: u16, kind: &str, body: &str, expect: &str, effect: Effect) {
    let answer = answer_to(status, kind, body, Pieces::One, Revision::V2025_11_25).await;
    let error = answer.expect_err(body);
    assert_eq!((error.to_string().as_str(), error.effect()), (expect, effect), "{status} {body:?}");
}

#[tokio::test]
async fn invalid_responses_are_errors() {
    use Effect::{None, Unknown};
    let (json, sse, unreadable) = ("application/json", "text/event-stream", "invalid answer from the server");
    let unanswered = "the outcome is unknown: the response holds no answer to the call";
    check_error(200, json, "", unanswered, Unknown).await;
    check_error(202, json, "", unanswered, Unknown).await;
    check_error(200, json, r#"{"jsonrpc":"2.0","id":999,"result":{}}"#, unanswered, Unknown).await;
    check_error(
        200,
        json,
        &"x".repeat(601),
        &format!("{unreadable}: the body is larger than 600 bytes"),
        Unknown,
    )
    .await;
    check_error(
        200,
        sse,
        &format!(": {}", "x".repeat(499)),
        &format!("{unreadable}: the peer sent an event-stream line of more than 500 bytes"),
        Unknown,
    )
    .await;
    let two_lines = format!("data: {}\n", "x".repeat(350)).repeat(2);
    check_error(
        200,
        sse,
        &two_lines,
        &format!("{unreadable}: the peer sent an event of more than 700 bytes"),
        Unknown,
    )
    .await;
    check_error(
        200,
        sse,
        "data: {}\n\n",
        &format!("{unreadable}: not a JSON-RPC message: \"jsonrpc\" must be \"2.0\""),
        Unknown,
    )
    .await;
    check_error(200, sse, "", "the outcome is unknown: the stream ended, and it cannot be resumed", Unknown)
        .await;
    check_error(
        200,
        sse,
        "data: $ANSWER\n",
        "the outcome is unknown: the stream ended, and it cannot be resumed",
        Unknown,
    )
    .await;
    check_error(400, "text/html", "<p>no</p>", "the server refused with status 400", None).await;
    check_error(404, json, "{}", "the server has lost the session", None).await;
    check_error(302, json, "", "the server refused with status 302", None).await;
    for status in [500, 502, 503, 504] {
        let expect = format!("the server refused with status {status}");
        check_error(status, "text/html", "<p>no</p>", &expect, Unknown).await;
        check_error(status, json, r#"{"error":{"code":1,"message":"m"}}"#, &expect, Unknown).await;
    }
    check_error(
        400,
        json,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m"}}"#,
        "the server refused with status 400: m",
        None,
    )
    .await;
}

#[tokio::test]
async fn json_rpc_errors_are_answers_with_any_status() {
    let body = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"no"}}"#;
    for status in [200, 400, 404, 500] {
        let answer = answer_to(status, "application/json", body, Pieces::One, Revision::V2025_11_25).await;
        assert_eq!(answer, Ok(Answer::Error(r#"{"code":-32601,"message":"no"}"#.into())), "{status}");
    }
}
