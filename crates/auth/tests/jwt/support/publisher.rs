//! [`Publisher`]: an HTTP server that publishes keys, or misbehaves.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use steadfast_auth::Keys;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How the publisher responds to a request.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// Sends a complete response.
    Respond(u16, String),
    /// Sends an endless response.
    Flood,
    /// Sends the head of a response, and then nothing.
    Stall,
    /// Closes the connection without a response.
    Close,
}

impl Behaviour {
    pub(crate) fn keys(keys: &[Value]) -> Self {
        Self::Respond(200, json!({"keys": keys}).to_string())
    }
}

#[derive(Clone)]
pub(crate) struct Publisher {
    address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
    requests: watch::Sender<usize>,
    /// Responses wait while this is true.
    held: watch::Sender<bool>,
}

impl Publisher {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (requests, held) = (watch::Sender::new(0), watch::Sender::new(false));
        let publisher = Self { address, behaviour: Arc::new(Mutex::new(behaviour)), requests, held };
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

    pub(crate) fn publish(&self, behaviour: Behaviour) {
        *self.behaviour.lock().expect("no panic") = behaviour;
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        *self.requests.borrow()
    }

    /// Waits until there were at least `count` requests.
    pub(crate) async fn wait_for_requests(&self, count: usize) {
        let mut requests = self.requests.subscribe();
        super::within("a fetch of keys", requests.wait_for(|requests| *requests >= count))
            .await
            .expect("it is there");
    }

    /// Delays all responses while `hold` is true.
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
        self.requests.send_modify(|requests| *requests += 1);
        let _ = self.held.subscribe().wait_for(|held| !held).await;
        let behaviour = self.behaviour.lock().expect("no panic").clone();
        let _ = match behaviour {
            Behaviour::Respond(status, body) => {
                let length = body.len();
                let text = format!(
                    "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                stream.write_all(text.as_bytes()).await
            }
            Behaviour::Flood => {
                let _ = stream.write_all(b"HTTP/1.1 200 x\r\n\r\n{\"keys\":[").await;
                while stream.write_all(&[b' '; 4096]).await.is_ok() {}
                Ok(())
            }
            Behaviour::Stall => {
                let _ = stream.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 10\r\n\r\n{").await;
                let mut nothing = [0];
                stream.read(&mut nothing).await.map(drop)
            }
            Behaviour::Close => Ok(()),
        };
    }
}
