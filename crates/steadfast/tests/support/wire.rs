//! HTTP/1.1 on a socket, as little of it as a client needs, with nothing done behind its back.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::within;

/// A connection, and what has arrived on it and was not used yet.
#[derive(Debug)]
pub(super) struct Wire {
    socket: TcpStream,
    arrived: Vec<u8>,
}

/// The head of a response.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
}

/// How much of a body is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(usize),
    /// Bytes left in the chunk that is being read.
    Chunked(usize),
    Done,
}

/// The connection ended in the middle of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl Wire {
    pub(super) async fn open(address: SocketAddr) -> Self {
        let socket = within("a connection", TcpStream::connect(address)).await.expect("the host listens");
        socket.set_nodelay(true).expect("TCP_NODELAY");
        Self { socket, arrived: Vec::new() }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        within("room to write", self.socket.write_all(bytes)).await.map_err(|_| Broken)
    }

    pub(super) async fn head(&mut self) -> Result<(Head, Framing), Broken> {
        let end = loop {
            if let Some(at) = find(&self.arrived, b"\r\n\r\n") {
                break at;
            }
            self.receive().await?;
        };
        let text = String::from_utf8(self.take(end + 4)).expect("a head of text");
        let mut lines = text.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let head = Head { status: status.expect("a status line"), headers };
        let framing = match (head.header("transfer-encoding"), head.header("content-length")) {
            (Some("chunked"), _) => Framing::Chunked(0),
            (None, Some(length)) => Framing::Length(length.parse().expect("a length")),
            (None, None) => Framing::Done,
            (Some(other), _) => panic!("transfer-encoding {other}"),
        };
        Ok((head, framing))
    }

    /// The next piece of a body; `None` after its proper end.
    pub(super) async fn body(&mut self, framing: &mut Framing) -> Result<Option<Vec<u8>>, Broken> {
        match *framing {
            Framing::Done | Framing::Length(0) => Ok(None),
            Framing::Length(left) => {
                self.at_least(1).await?;
                let piece = self.take(left.min(self.arrived.len()));
                *framing = Framing::Length(left - piece.len());
                Ok(Some(piece))
            }
            Framing::Chunked(0) => {
                let line = self.line().await?;
                let size = usize::from_str_radix(&line, 16).expect("the size of a chunk");
                if size == 0 {
                    self.line().await?;
                    *framing = Framing::Done;
                    return Ok(None);
                }
                *framing = Framing::Chunked(size);
                Box::pin(self.body(framing)).await
            }
            Framing::Chunked(left) => {
                self.at_least(1).await?;
                let piece = self.take(left.min(self.arrived.len()));
                let left = left - piece.len();
                if left == 0 {
                    self.line().await?;
                }
                *framing = Framing::Chunked(left);
                Ok(Some(piece))
            }
        }
    }

    async fn line(&mut self) -> Result<String, Broken> {
        loop {
            if let Some(at) = find(&self.arrived, b"\r\n") {
                let line = self.take(at + 2);
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            self.receive().await?;
        }
    }

    async fn at_least(&mut self, count: usize) -> Result<(), Broken> {
        while self.arrived.len() < count {
            self.receive().await?;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<(), Broken> {
        self.arrived.reserve(64 << 10);
        match within("bytes of the server", self.socket.read_buf(&mut self.arrived)).await {
            Ok(0) | Err(_) => Err(Broken),
            Ok(_) => Ok(()),
        }
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        self.arrived.drain(..count).collect()
    }
}

impl Head {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub(super) fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    let mut from = 0;
    // Looking for single bytes is what unoptimised code does fast.
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == what[0]) {
        if bytes[from + at..].starts_with(what) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}
