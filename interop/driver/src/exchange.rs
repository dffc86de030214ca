//! One HTTP request on a connection of its own, which ends with its response: dropping that is a cut.

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
pub(crate) struct Response {
    pub(crate) head: http::response::Parts,
    pub(crate) body: Incoming,
    pub(crate) connection: Connection,
}

/// Open for as long as this lives.
#[derive(Debug)]
pub(crate) struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Gives the head of the response with the body still to come.
pub(crate) async fn send(
    address: SocketAddr,
    method: Method,
    headers: &[(&str, &str)],
    body: String,
) -> Result<Response, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // An error of the connection is an error of the response as well.
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
