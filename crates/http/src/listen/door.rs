//! What happens between a TCP connection and the first byte of HTTP.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub type Opening<S> = Pin<Box<dyn Future<Output = io::Result<S>> + Send>>;

/// Turns a TCP connection into one that HTTP is spoken on.
pub trait Door: Clone + Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// May take as long as the client lets it; the accept loop bounds it.
    fn open(&self, stream: TcpStream) -> Opening<Self::Stream>;
}

/// HTTP is spoken at once.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Door for Plain {
    type Stream = TcpStream;

    fn open(&self, stream: TcpStream) -> Opening<TcpStream> {
        Box::pin(std::future::ready(Ok(stream)))
    }
}
