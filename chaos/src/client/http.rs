//! Requests, each on a connection of its own.

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

const CONNECT: Duration = Duration::from_secs(3);
/// For the head of a response. Longer than whatever is frozen for a while needs to wake up.
const HEAD: Duration = Duration::from_secs(12);
const BODY: Duration = Duration::from_secs(5);
const BODY_BYTES: usize = 1 << 20;

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoResponse {
    /// Nobody was there: nothing was sent.
    NotSent,
    /// It may have arrived.
    Broken(String),
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    body: Incoming,
    /// What moves the bytes. It ends with the response.
    driver: Driver,
}

#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A request to the endpoint with these headers.
pub(crate) async fn send(
    address: SocketAddr,
    method: Method,
    headers: &[(&'static str, String)],
    body: Option<&Value>,
) -> Result<Response, NoResponse> {
    let Ok(Ok(socket)) = timeout(CONNECT, TcpStream::connect(address)).await else {
        return Err(NoResponse::NotSent);
    };
    let _ = socket.set_nodelay(true);
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(broken)?;
    // What goes wrong with it shows in the response.
    let driver = Driver(tokio::spawn(async move { drop(connection.await) }));
    let mut request = Request::builder().method(method).uri("/mcp").header(header::HOST, address.to_string());
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = request.body(Full::new(Bytes::from(body))).map_err(broken)?;
    let response = match timeout(HEAD, sender.send_request(request)).await {
        Ok(response) => response.map_err(broken)?,
        Err(_) => return Err(NoResponse::Broken("no answer in time".to_owned())),
    };
    let (head, body) = response.into_parts();
    Ok(Response { status: head.status, headers: head.headers, body, driver })
}

impl Response {
    pub(crate) fn is_stream(&self) -> bool {
        self.headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes() == b"text/event-stream")
    }

    /// The next piece of the body; `None` at its end.
    pub(crate) async fn piece(&mut self) -> Option<Result<Bytes, NoResponse>> {
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

    /// The whole body, if it is JSON.
    pub(crate) async fn json(self) -> Result<Value, NoResponse> {
        let Self { body, driver, .. } = self;
        let collected = timeout(BODY, Limited::new(body, BODY_BYTES).collect()).await;
        drop(driver);
        let bytes = collected.map_err(broken)?.map_err(broken)?.to_bytes();
        serde_json::from_slice(&bytes).map_err(broken)
    }
}

fn broken(error: impl ToString) -> NoResponse {
    NoResponse::Broken(error.to_string())
}
