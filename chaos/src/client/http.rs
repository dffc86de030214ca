//! HTTP requests of clients. Each request has its own connection.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// For the head of a response. Longer than any freeze of a process.
const HEAD_TIMEOUT: Duration = Duration::from_secs(12);
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BODY_BYTES: usize = 1 << 20;

/// Why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// No connection could be opened, so nothing was sent.
    NotSent,
    /// The connection broke. The request may have arrived.
    Broken(String),
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    body: Incoming,
    /// Dropping it closes the connection.
    driver: Driver,
}

/// The task that reads and writes the connection.
#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a request to the MCP endpoint.
pub(crate) async fn send(
    address: SocketAddr,
    method: Method,
    headers: &[(&'static str, String)],
    body: Option<&Value>,
) -> Result<Response, RequestError> {
    let Ok(Ok(socket)) = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await else {
        return Err(RequestError::NotSent);
    };
    let _ = socket.set_nodelay(true);
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(broken)?;
    // An error of the connection is also an error of the response.
    let driver = Driver(tokio::spawn(async move { drop(connection.await) }));
    let mut request = Request::builder().method(method).uri("/mcp").header(header::HOST, address.to_string());
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = request.body(Full::new(Bytes::from(body))).map_err(broken)?;
    let response = match timeout(HEAD_TIMEOUT, sender.send_request(request)).await {
        Ok(response) => response.map_err(broken)?,
        Err(_) => return Err(RequestError::Broken("no answer in time".to_owned())),
    };
    let (head, body) = response.into_parts();
    Ok(Response { status: head.status, headers: head.headers, body, driver })
}

impl Response {
    pub(crate) fn is_stream(&self) -> bool {
        self.headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes() == b"text/event-stream")
    }

    /// Returns the next chunk of the body; `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Option<Result<Bytes, RequestError>> {
        loop {
            match self.body.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(broken(error))),
            }
        }
    }

    /// Reads the whole body as JSON.
    pub(crate) async fn json(self) -> Result<Value, RequestError> {
        let Self { body, driver, .. } = self;
        let collected = timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await;
        drop(driver);
        let bytes = collected.map_err(broken)?.map_err(broken)?.to_bytes();
        serde_json::from_slice(&bytes).map_err(broken)
    }
}

fn broken(error: impl ToString) -> RequestError {
    RequestError::Broken(error.to_string())
}
