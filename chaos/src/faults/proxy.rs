//! A TCP proxy that can disturb its connections with a [`NetworkFault`].

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::network_fault::{Direction, NetworkFault};
use crate::ports;
use crate::rng::Rng;

/// The largest number of bytes that the proxy forwards at a time.
const CHUNK: usize = 16 << 10;
const DRIP_PAUSE: Duration = Duration::from_millis(1);
/// A frozen process never accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    target: SocketAddr,
    fault: watch::Sender<NetworkFault>,
    rng: Arc<Mutex<Rng>>,
    /// The task that accepts connections. Without it the system refuses them, as if the target were
    /// down.
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Proxy {
    pub(crate) fn start(target: SocketAddr, rng: Rng) -> io::Result<Self> {
        let listener = ports::listen()?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let proxy = Self {
            address: listener.local_addr()?,
            target,
            fault: watch::Sender::default(),
            rng: Arc::new(Mutex::new(rng)),
            accepting: Mutex::default(),
        };
        proxy.accept(listener);
        Ok(proxy)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set(&self, fault: NetworkFault) {
        self.fault.send_replace(fault);
    }

    /// Refuses connections from now on, as if the target were down.
    pub(crate) fn close(&self) {
        if let Some(task) = self.accepting().take() {
            task.abort();
        }
    }

    /// Accepts connections again.
    pub(crate) async fn open(&self) -> io::Result<()> {
        if self.accepting().is_none() {
            let listener = TcpListener::bind(self.address).await?;
            self.accept(listener);
        }
        Ok(())
    }

    fn accept(&self, listener: TcpListener) {
        let (target, fault, rng) = (self.target, self.fault.clone(), Arc::clone(&self.rng));
        let task = tokio::spawn(async move {
            loop {
                // Too many connections are open. Some of them will end.
                let Ok((client, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let seed = rng.lock().unwrap_or_else(PoisonError::into_inner).next();
                tokio::spawn(serve(client, target, fault.subscribe(), seed));
            }
        });
        *self.accepting() = Some(task);
    }

    fn accepting(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.accepting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(client: TcpStream, target: SocketAddr, fault: watch::Receiver<NetworkFault>, seed: u64) {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(target)).await;
    let Ok(Ok(server)) = connected else {
        // A reset, as from a machine where the port is closed.
        let _ = client.set_zero_linger();
        return;
    };
    // Only a fault may delay bytes.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let end = {
        let mut up = Pump { direction: Direction::ToServer, fault: fault.clone(), rng: Rng::of(seed, "up") };
        let mut down = Pump { direction: Direction::ToClient, fault, rng: Rng::of(seed, "down") };
        let mut up = std::pin::pin!(up.run(&mut from_client, &mut to_server));
        let mut down = std::pin::pin!(down.run(&mut from_server, &mut to_client));
        let (first, is_up) = tokio::select! {
            end = &mut up => (end, true),
            end = &mut down => (end, false),
        };
        match first {
            End::Closed if is_up => down.await,
            End::Closed => up.await,
            End::Cut | End::Reset => first,
        }
    };
    if end == End::Reset {
        let _ = (from_client.as_ref().set_zero_linger(), from_server.as_ref().set_zero_linger());
        // Dropping the write halves would send FIN before the reset.
        to_client.forget();
        to_server.forget();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// This direction has ended. The other direction may continue.
    Closed,
    /// Both directions end.
    Cut,
    Reset,
}

/// One direction of a connection.
struct Pump {
    direction: Direction,
    fault: watch::Receiver<NetworkFault>,
    rng: Rng,
}

impl Pump {
    async fn run(&mut self, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) -> End {
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = tokio::select! {
                read = from.read(&mut chunk) => read,
                _ = self.fault.changed() => {
                    match self.apply_change(to).await {
                        None => continue,
                        Some(end) => return end,
                    }
                }
            };
            let Ok(count @ 1..) = read else {
                // Fails if the other side has closed the connection.
                let _ = to.shutdown().await;
                return if read.is_ok() { End::Closed } else { End::Reset };
            };
            if let Some(end) = self.forward(&chunk[..count], to).await {
                return end;
            }
        }
    }

    /// Applies a new fault to an idle connection. Returns how the connection ends, if it does.
    async fn apply_change(&mut self, to: &mut OwnedWriteHalf) -> Option<End> {
        let fault = *self.fault.borrow_and_update();
        match fault {
            NetworkFault::Reset => Some(End::Reset),
            NetworkFault::HalfClose(direction) if direction == self.direction => {
                let _ = to.shutdown().await;
                Some(End::Closed)
            }
            _ => None,
        }
    }

    /// Forwards bytes as the fault demands. Returns how the connection ends, if it does.
    async fn forward(&mut self, chunk: &[u8], to: &mut OwnedWriteHalf) -> Option<End> {
        let mut fault = *self.fault.borrow_and_update();
        while fault == NetworkFault::Stall {
            if self.fault.changed().await.is_err() {
                return Some(End::Cut);
            }
            fault = *self.fault.borrow_and_update();
        }
        let written = match fault {
            NetworkFault::Reset => return Some(End::Reset),
            NetworkFault::Truncate if self.direction == Direction::ToClient => {
                let cut = self.rng.below(chunk.len());
                let _ = to.write_all(&chunk[..cut]).await;
                let _ = to.shutdown().await;
                return Some(End::Cut);
            }
            NetworkFault::HalfClose(direction) if direction == self.direction => {
                let _ = to.shutdown().await;
                return Some(End::Closed);
            }
            NetworkFault::Drip => self.drip(chunk, to).await,
            NetworkFault::Delay(delay) => {
                tokio::time::sleep(delay).await;
                to.write_all(chunk).await
            }
            _ => to.write_all(chunk).await,
        };
        written.err().map(|_| End::Reset)
    }

    async fn drip(&mut self, chunk: &[u8], to: &mut OwnedWriteHalf) -> io::Result<()> {
        let mut rest = chunk;
        while !rest.is_empty() {
            if *self.fault.borrow() != NetworkFault::Drip {
                return to.write_all(rest).await;
            }
            let drop;
            (drop, rest) = rest.split_at(rest.len().min(1 + self.rng.below(12)));
            to.write_all(drop).await?;
            tokio::time::sleep(DRIP_PAUSE).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const TEXT: &[u8] = b"some words that are long enough to be cut";

    /// Returns what a client reads from an echo server, and whether the connection ended without a
    /// reset.
    async fn echoed(fault: NetworkFault) -> (Vec<u8>, bool) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = Proxy::start(server.local_addr().unwrap(), Rng::of(1, "")).unwrap();
        proxy.set(fault);
        tokio::spawn(async move {
            while let Ok((connection, _)) = server.accept().await {
                let (mut from, mut to) = connection.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await });
            }
        });
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let _ = client.write_all(TEXT).await;
        let _ = client.shutdown().await;
        let mut read = Vec::new();
        let ended = client.read_to_end(&mut read).await.is_ok();
        (read, ended)
    }

    #[tokio::test]
    async fn every_fault_has_its_effect() {
        let whole = (TEXT.to_vec(), true);
        assert_eq!(echoed(NetworkFault::None).await, whole);
        assert_eq!(echoed(NetworkFault::Drip).await, whole);
        assert_eq!(echoed(NetworkFault::Delay(Duration::from_millis(1))).await, whole);
        let (read, ended) = echoed(NetworkFault::Truncate).await;
        assert!(ended && read.len() < TEXT.len() && TEXT.starts_with(&read), "{read:?}");
        assert_eq!(echoed(NetworkFault::HalfClose(Direction::ToClient)).await, (Vec::new(), true));
        assert_eq!(echoed(NetworkFault::HalfClose(Direction::ToServer)).await, (Vec::new(), true));
        assert_eq!(echoed(NetworkFault::Reset).await, (Vec::new(), false));
    }

    #[tokio::test]
    async fn a_stall_delays_bytes_and_loses_none() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = Proxy::start(server.local_addr().unwrap(), Rng::of(1, "")).unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let (mut at_server, _) = server.accept().await.unwrap();
        proxy.set(NetworkFault::Stall);
        client.write_all(TEXT).await.unwrap();
        let mut read = vec![0; TEXT.len()];
        let early = tokio::time::timeout(Duration::from_millis(50), at_server.read_exact(&mut read)).await;
        assert!(early.is_err());
        proxy.set(NetworkFault::None);
        at_server.read_exact(&mut read).await.unwrap();
        assert_eq!(read, TEXT);
    }

    #[tokio::test]
    async fn a_closed_proxy_refuses_connections() {
        let proxy = Proxy::start(([127, 0, 0, 1], 9).into(), Rng::of(1, "")).unwrap();
        proxy.close();
        while TcpStream::connect(proxy.address()).await.is_ok() {
            tokio::task::yield_now().await;
        }
        proxy.open().await.unwrap();
        assert!(TcpStream::connect(proxy.address()).await.is_ok());
    }
}
