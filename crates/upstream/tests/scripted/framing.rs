//! Answers in every framing that servers use.

use steadfast_client::Limits;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Session, json};

use super::{call, reason};

const ANSWER: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"ok": true}}"#;

#[derive(Clone, Copy, Debug)]
enum Pieces {
    One,
    Bytes,
    Chunked,
}

/// `$ANSWER` and `$ID` in a body stand for the answer and its id.
fn reply(request: &Request, kind: &str, body: &str, pieces: Pieces) -> Reply {
    let body = body.replace("$ANSWER", ANSWER).replace("$ID", &request.body["id"].to_string());
    let head = format!("HTTP/1.1 200 x\r\ncontent-type: {kind}\r\n");
    match pieces {
        Pieces::One => Reply::default().send(&format!("{head}\r\n{body}")),
        Pieces::Bytes => Reply::default().drip(&format!("{head}\r\n{body}")),
        Pieces::Chunked => {
            let head = format!("{head}transfer-encoding: chunked\r\n\r\n");
            let pieces = body.as_bytes().chunks(3).map(|piece| String::from_utf8_lossy(piece).into_owned());
            pieces.fold(Reply::default().send(&head), |reply, piece| reply.chunk(&piece)).end()
        }
    }
}

const SSE: &str = "text/event-stream";

const BODIES: [(&str, &str); 12] = [
    ("application/json", "$ANSWER"),
    ("Application/JSON; charset=utf-8", " \n$ANSWER\r\n"),
    (SSE, "event: message\ndata: $ANSWER\n\n"),
    ("Text/Event-Stream; charset=utf-8", "data: $ANSWER\n\n"),
    (SSE, "data:$ANSWER\n\n"),
    (SSE, "\u{feff}data: $ANSWER\n\n"),
    (SSE, ": hello\n\n:\n\ndata: $ANSWER\n\n"),
    (SSE, "event: message\r\nid: 1\r\ndata: $ANSWER\r\n\r\n"),
    (SSE, "data: $ANSWER\nid: 5\nretry: 1\nevent: message\n\n"),
    (SSE, "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":$ID,\ndata:\"result\":{\"ok\": true}}\n\n"),
    (SSE, "id: 0\nretry: 3000\ndata:\n\ndata: $ANSWER\n\n"),
    (SSE, "event: ping\ndata: not json\n\nunknown: 1\ndata: $ANSWER\n\ndata: rubbish\n\n"),
];

#[tokio::test]
async fn answers_are_read_in_every_framing() {
    let server = Server::with_sessions(|request| {
        let no: usize = request.body["params"]["name"].as_str()?.parse().ok()?;
        let pieces = [Pieces::One, Pieces::Bytes, Pieces::Chunked][no % 3];
        let (kind, body) = BODIES[no / 3];
        Some(reply(request, kind, body, pieces))
    })
    .await;
    let (_host, session) = super::opened(&server).await;
    for no in 0..BODIES.len() * 3 {
        let answer = call(&session, no as u64, &no.to_string()).await;
        let expect = json!({"jsonrpc": "2.0", "id": no, "result": {"ok": true}});
        assert_eq!(answer, expect, "{:?}, way {}", BODIES[no / 3], no % 3);
        assert_eq!(super::calls(&server, &no.to_string()), 1);
    }
}

/// The rest of a stream that is cut at any byte is asked for, or the client is told; it never waits
/// for ever.
#[tokio::test]
async fn lines_and_bodies_are_read_up_to_their_bounds() {
    const MOST: usize = 10 << 20;
    let server = Server::with_sessions(|request| {
        let name = request.body["params"]["name"].as_str()?;
        let (kind, bytes) = name.split_once(' ')?;
        let id = &request.body["id"];
        // With this many bytes in all.
        let message = |bytes: usize| {
            let empty = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":""}}}}"#);
            empty.replace(r#""""#, &format!(r#""{}""#, "x".repeat(bytes - empty.len())))
        };
        let bytes: usize = bytes.parse().unwrap();
        Some(match kind {
            "json" => Reply::new(200, "content-type: application/json\r\n", &message(bytes)),
            _ => Reply::stream().send(&format!("data:{}\n\n", message(bytes - "data:".len()))),
        })
    })
    .await;
    let host = Host::before(Backing::Memory, [server.url()], |builder| {
        builder.upstream(|config| {
            config.limits =
                Limits { body_bytes: MOST, line_bytes: MOST, event_bytes: MOST, ..Limits::default() };
        })
    })
    .await;
    let session = Session::open(&host).await;
    for (id, kind) in ["json", "line"].into_iter().enumerate() {
        let id = id as u64 * 10;
        let fits = call(&session, id, &format!("{kind} {MOST}")).await;
        assert!(fits["result"]["x"].as_str().unwrap().len() > MOST - 100, "{kind}");
        let too_long = call(&session, id + 1, &format!("{kind} {}", MOST + 1)).await;
        assert_eq!(reason(&too_long), ("bad_response".to_owned(), false), "{kind}");
        let more = call(&session, id + 2, &format!("{kind} {}", 2 * MOST)).await;
        assert_eq!(reason(&more), ("bad_response".to_owned(), false), "{kind}");
    }
}
