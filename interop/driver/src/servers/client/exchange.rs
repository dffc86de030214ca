//! Sends one HTTP request on its own connection. Dropping the response cuts the connection.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

#[derive(Debug)]
pub(super) struct Response {
    pub(super) head: http::response::Parts,
    pub(super) body: Incoming,
    pub(super) connection: Connection,
}

/// The connection is open while this value lives.
#[derive(Debug)]
pub(super) struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns when the head of the response has arrived. The body follows.
pub(super) async fn send(
    address: SocketAddr,
    method: Method,
    headers: &[(&str, &str)],
    body: String,
) -> Result<Response, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // The reader of the response sees an error of the connection as well.
    let connection = Connection(tokio::spawn(async { connection.await.unwrap_or_default() }));
    let mut request = Request::builder().method(method).uri("/mcp").header("Host", address.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let (head, body) = response.into_parts();
    Ok(Response { head, body, connection })
}
