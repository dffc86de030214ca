//! Whoever publishes keys, in good ways and bad.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use steadfast_auth::Keys;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What to do about a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// An answer in one piece.
    Answer(u16, String),
    /// An answer without end.
    Flood,
    /// The head of an answer, and then nothing.
    Stall,
    HangUp,
}

impl Act {
    pub(crate) fn keys(keys: &[Value]) -> Self {
        Self::Answer(200, json!({"keys": keys}).to_string())
    }
}

#[derive(Clone)]
pub(crate) struct Publisher {
    address: SocketAddr,
    act: Arc<Mutex<Act>>,
    asked: watch::Sender<usize>,
    /// Requests wait while this is true.
    held: watch::Sender<bool>,
}

impl Publisher {
    pub(crate) async fn start(act: Act) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (asked, held) = (watch::Sender::new(0), watch::Sender::new(false));
        let publisher = Self { address, act: Arc::new(Mutex::new(act)), asked, held };
        let serving = publisher.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let publisher = serving.clone();
                tokio::spawn(async move { publisher.serve(stream).await });
            }
        });
        publisher
    }

    pub(crate) fn keys(&self) -> Keys {
        Keys::Url(format!("http://{}/keys", self.address).parse().expect("an address"))
    }

    pub(crate) fn publish(&self, act: Act) {
        *self.act.lock().expect("no panic") = act;
    }

    /// How often it was asked so far.
    pub(crate) fn asked(&self) -> usize {
        *self.asked.borrow()
    }

    pub(crate) async fn asked_at_least(&self, times: usize) {
        let mut asked = self.asked.subscribe();
        super::within("a look for keys", asked.wait_for(|asked| *asked >= times)).await.expect("it is there");
    }

    pub(crate) fn hold(&self, hold: bool) {
        self.held.send_replace(hold);
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        self.asked.send_modify(|asked| *asked += 1);
        let _ = self.held.subscribe().wait_for(|held| !held).await;
        let act = self.act.lock().expect("no panic").clone();
        let _ = match act {
            Act::Answer(status, body) => {
                let length = body.len();
                let text = format!(
                    "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                stream.write_all(text.as_bytes()).await
            }
            Act::Flood => {
                let _ = stream.write_all(b"HTTP/1.1 200 x\r\n\r\n{\"keys\":[").await;
                while stream.write_all(&[b' '; 4096]).await.is_ok() {}
                Ok(())
            }
            Act::Stall => {
                let _ = stream.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 10\r\n\r\n{").await;
                let mut nothing = [0];
                stream.read(&mut nothing).await.map(drop)
            }
            Act::HangUp => Ok(()),
        };
    }
}
