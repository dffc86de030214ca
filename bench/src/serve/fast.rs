//! An upstream server that takes almost no time, so that a benchmark measures the proxy in front of
//! it. It parses as little of a request as possible and responds to every call with one character.

use std::io;

use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Large enough for a whole request.
const ROOM: usize = 64 * 1024;

/// Serves until the process ends.
pub(super) async fn serve(listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Accepting fails when descriptors run out. They are freed as connections end.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            // The load generator counts broken connections.
            let _ = converse(stream).await;
        });
    }
}

async fn converse(mut stream: TcpStream) -> io::Result<()> {
    let (mut buffer, mut answer) = (Vec::with_capacity(1024), Vec::with_capacity(512));
    loop {
        let Some((head, total)) = request(&buffer) else {
            if buffer.len() > ROOM || stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            continue;
        };
        answer.clear();
        respond(&buffer[..head], &buffer[head..total], &mut answer);
        stream.write_all(&answer).await?;
        buffer.drain(..total);
    }
}

/// Returns the ends of the head and of the whole first request, if all of it has arrived.
fn request(buffer: &[u8]) -> Option<(usize, usize)> {
    let head = memmem::find(buffer, b"\r\n\r\n")? + 4;
    let total = head + content_length(&buffer[..head]);
    (buffer.len() >= total).then_some((head, total))
}

fn content_length(head: &[u8]) -> usize {
    let name = b"content-length:";
    let lines = head.split(|byte| *byte == b'\n');
    let mut values = lines.filter_map(|line| {
        let (start, value) = line.split_at_checked(name.len())?;
        start.eq_ignore_ascii_case(name).then_some(value)
    });
    let value = values.next().and_then(|value| std::str::from_utf8(value).ok());
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn respond(head: &[u8], body: &[u8], answer: &mut Vec<u8>) {
    const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n2\r\n:\n\r\n";
    if head.starts_with(b"GET") {
        // A standalone stream without messages.
        return answer.extend_from_slice(STREAM);
    }
    let Some(id) = id(body) else {
        let status = if head.starts_with(b"DELETE") { "200 OK" } else { "202 Accepted" };
        return answer
            .extend_from_slice(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes());
    };
    let (session, result) = if memmem::find(body, br#""initialize""#).is_some() {
        let result = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fast","version":"0"}}"#;
        ("mcp-session-id: fast\r\n", result)
    } else if memmem::find(body, br#""tools/list""#).is_some() {
        (
            "",
            r#"{"tools":[{"name":"tiny","description":"Returns one character.","inputSchema":{"type":"object"}}]}"#,
        )
    } else if memmem::find(body, br#"/list""#).is_some() {
        ("", r#"{"resources":[],"resourceTemplates":[],"prompts":[]}"#)
    } else {
        ("", r#"{"content":[{"type":"text","text":"x"}]}"#)
    };
    let length = id.len() + result.len() + r#"{"jsonrpc":"2.0","id":,"result":}"#.len();
    answer.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n");
    answer.extend_from_slice(session.as_bytes());
    answer.extend_from_slice(b"content-length: ");
    answer.extend_from_slice(length.to_string().as_bytes());
    answer.extend_from_slice(b"\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":");
    answer.extend_from_slice(id);
    answer.extend_from_slice(b",\"result\":");
    answer.extend_from_slice(result.as_bytes());
    answer.push(b'}');
}

/// Returns the JSON text of the id of a request, or `None` for a notification.
fn id(body: &[u8]) -> Option<&[u8]> {
    let from = memmem::find(body, br#""id":"#)? + br#""id":"#.len();
    let rest = body[from..].trim_ascii_start();
    let end = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b' ')).unwrap_or(rest.len());
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_answered_under_their_own_id() {
        let body = br#"{"jsonrpc":"2.0","id":"a1","method":"tools/call","params":{"name":"tiny"}}"#;
        let text = format!("POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut all = text.clone().into_bytes();
        assert_eq!(request(&all), None);
        all.extend_from_slice(body);
        assert_eq!(request(&all), Some((text.len(), all.len())));
        let mut answer = Vec::new();
        respond(text.as_bytes(), body, &mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        assert_eq!(body, r#"{"jsonrpc":"2.0","id":"a1","result":{"content":[{"type":"text","text":"x"}]}}"#);
    }

    #[test]
    fn notifications_are_accepted() {
        let mut answer = Vec::new();
        respond(
            b"POST /mcp HTTP/1.1\r\n\r\n",
            br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            &mut answer,
        );
        assert!(answer.starts_with(b"HTTP/1.1 202"));
    }
}
