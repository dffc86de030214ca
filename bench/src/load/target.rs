//! The server under load: its URL, connections to it, and sessions at it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::response::Response;
use crate::Error;

/// The revision of the load: the newest one with sessions.
const PROTOCOL_VERSION: &str = "2025-11-25";

#[derive(Debug, Clone)]
pub(crate) struct Target {
    address: SocketAddr,
    authority: String,
    path: String,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let rest = url.strip_prefix("http://").ok_or("the URL must start with http://")?;
        let (authority, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
        let address = authority.to_socket_addrs()?.next().ok_or("the URL names no address")?;
        Ok(Self { address, authority: authority.to_owned(), path: path.to_owned() })
    }

    /// Returns the bytes of a POST of `body`, with a session or without.
    pub(crate) fn post(&self, session: Option<&str>, body: &str) -> Vec<u8> {
        let headers = session.map_or_else(String::new, |id| {
            format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {PROTOCOL_VERSION}\r\n")
        });
        self.post_with(&headers, body)
    }

    /// Returns the bytes of a stateless call of a tool.
    pub(crate) fn post_stateless(&self, tool: &str, body: &str) -> Vec<u8> {
        let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n";
        self.post_with(&format!("{headers}Mcp-Name: {tool}\r\n"), body)
    }

    fn post_with(&self, headers: &str, body: &str) -> Vec<u8> {
        let Self { authority, path, .. } = self;
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    /// Returns the bytes of a GET that listens to a session.
    pub(crate) fn listen(&self, session: &str) -> Vec<u8> {
        let Self { authority, path, .. } = self;
        format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: text/event-stream\r\n\
             Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {PROTOCOL_VERSION}\r\n\r\n"
        )
        .into_bytes()
    }

    /// Returns the bytes of a GET that resumes a stream after an event.
    pub(crate) fn resume(&self, session: &str, after: &str) -> Vec<u8> {
        let Self { authority, path, .. } = self;
        format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: text/event-stream\r\n\
             Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {PROTOCOL_VERSION}\r\n\
             Last-Event-ID: {after}\r\n\r\n"
        )
        .into_bytes()
    }

    /// Opens a socket to the server.
    pub(crate) async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Opens a session over a new connection.
    pub(crate) async fn open_session(&self) -> Result<String, Error> {
        self.open_session_over(&mut Connection::open(self).await?).await
    }

    /// Opens a session the way a client does and returns its id.
    pub(crate) async fn open_session_over(&self, connection: &mut Connection) -> Result<String, Error> {
        let initialize = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{PROTOCOL_VERSION}","capabilities":{{}},"clientInfo":{{"name":"steadfast-bench","version":"0"}}}}}}"#
        );
        let response = connection.exchange(&self.post(None, &initialize)).await?;
        if response.status() != 200 || memmem::find(response.body(), PROTOCOL_VERSION.as_bytes()).is_none() {
            return Err(refused("initialize", response));
        }
        let id = response.header("mcp-session-id").ok_or("the server returned no session id")?;
        let id = String::from_utf8(id.to_vec())?;
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let response = connection.exchange(&self.post(Some(&id), initialized)).await?;
        if response.status() != 202 {
            return Err(refused("notifications/initialized", response));
        }
        Ok(id)
    }
}

fn refused(what: &str, response: &Response) -> Error {
    let (status, body) = (response.status(), String::from_utf8_lossy(response.body()));
    format!("{what} was answered with {status} {body}").into()
}

/// A keep-alive connection with one request in flight at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    response: Response,
}

impl Connection {
    pub(crate) async fn open(target: &Target) -> io::Result<Self> {
        Ok(Self { stream: target.connect().await?, response: Response::new() })
    }

    /// Sends a request and reads its whole response.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> io::Result<&Response> {
        self.stream.write_all(request).await?;
        self.response.reset();
        loop {
            let count = self.stream.read(self.response.spare()).await?;
            if count == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
            if self.response.filled(count)? {
                return Ok(&self.response);
            }
        }
    }
}
