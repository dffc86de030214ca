//! A relay between client and server that cuts responses off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast_client::Uri;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The response to a request that contains this text is cut off after the allowed number of bytes.
pub(crate) const MARK: &[u8] = b"cut me";

#[derive(Clone)]
pub(crate) struct Cutter {
    address: SocketAddr,
    allowed: Arc<AtomicUsize>,
}

impl Cutter {
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let allowed = Arc::new(AtomicUsize::new(usize::MAX));
        let relay = Self { address, allowed: Arc::clone(&allowed) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let allowed = allowed.load(Ordering::SeqCst);
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(target).await else { return };
                    // Both connections end in any case.
                    let _ = pass(client, server, allowed).await;
                });
            }
        });
        relay
    }

    pub(crate) fn url(&self) -> Uri {
        format!("http://{}/mcp", self.address).parse().expect("an address")
    }

    /// Sets the number of bytes for marked responses on later connections.
    pub(crate) fn allow(&self, bytes: usize) {
        self.allowed.store(bytes, Ordering::SeqCst);
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, allowed: usize) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut up, mut down) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    let mut left = None;
    loop {
        tokio::select! {
            got = client.read(&mut up) => {
                let part = &up[..got?];
                if part.is_empty() {
                    return Ok(());
                }
                if part.windows(MARK.len()).any(|window| window == MARK) {
                    left = Some(allowed);
                }
                server.write_all(part).await?;
            }
            got = server.read(&mut down) => {
                let part = &down[..got?];
                let sent = left.map_or(part.len(), |left| left.min(part.len()));
                client.write_all(&part[..sent]).await?;
                left = left.map(|left| left - sent);
                if part.is_empty() || left == Some(0) {
                    return Ok(());
                }
            }
        }
    }
}
