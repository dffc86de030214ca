//! The handshake between accepting a TCP connection and the first byte of HTTP, such as TLS.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub type HandshakeFuture<S> = Pin<Box<dyn Future<Output = io::Result<S>> + Send>>;

/// Turns a TCP connection into a stream that carries HTTP.
pub trait Handshake: Clone + Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Performs the handshake. The accept loop applies a timeout.
    fn perform(&self, stream: TcpStream) -> HandshakeFuture<Self::Stream>;
}

/// No handshake: HTTP over plain TCP.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Handshake for Plain {
    type Stream = TcpStream;

    fn perform(&self, stream: TcpStream) -> HandshakeFuture<TcpStream> {
        Box::pin(std::future::ready(Ok(stream)))
    }
}
