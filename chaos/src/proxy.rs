//! A proxy that does to connections what networks do.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::ports;
use crate::rng::Rng;
use crate::weather::{Way, Weather};

/// What is passed on at a time.
const PIECE: usize = 16 << 10;
const DRIP_PAUSE: Duration = Duration::from_millis(1);
/// A connection to somebody who is frozen takes for ever.
const CONNECT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    target: SocketAddr,
    weather: watch::Sender<Weather>,
    rng: Arc<Mutex<Rng>>,
    /// Nobody listens while there is none: whoever connects is refused, as if the target itself were not there.
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
            weather: watch::Sender::default(),
            rng: Arc::new(Mutex::new(rng)),
            accepting: Mutex::default(),
        };
        proxy.accept(listener);
        Ok(proxy)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// The target goes away.
    pub(crate) fn close(&self) {
        if let Some(task) = self.accepting().take() {
            task.abort();
        }
    }

    /// The target is back.
    pub(crate) async fn open(&self) -> io::Result<()> {
        if self.accepting().is_none() {
            let listener = TcpListener::bind(self.address).await?;
            self.accept(listener);
        }
        Ok(())
    }

    fn accept(&self, listener: TcpListener) {
        let (target, weather, rng) = (self.target, self.weather.clone(), Arc::clone(&self.rng));
        let task = tokio::spawn(async move {
            loop {
                // It fails if there are too many connections; some of them will end.
                let Ok((client, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let seed = rng.lock().unwrap_or_else(PoisonError::into_inner).next();
                tokio::spawn(serve(client, target, weather.subscribe(), seed));
            }
        });
        *self.accepting() = Some(task);
    }

    fn accepting(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.accepting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(client: TcpStream, target: SocketAddr, weather: watch::Receiver<Weather>, seed: u64) {
    let connected = tokio::time::timeout(CONNECT, TcpStream::connect(target)).await;
    let Ok(Ok(server)) = connected else {
        // As from a machine on which nobody listens.
        let _ = client.set_zero_linger();
        return;
    };
    // Delay is the weather's business.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let end = {
        let mut up = Pump { way: Way::Up, weather: weather.clone(), rng: Rng::of(seed, "up") };
        let mut down = Pump { way: Way::Down, weather, rng: Rng::of(seed, "down") };
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
        // Dropped, they would say goodbye first.
        to_client.forget();
        to_server.forget();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// This direction has come to its end, and the other may go on.
    Closed,
    /// The connection is over.
    Cut,
    Reset,
}

/// One direction of a connection.
struct Pump {
    way: Way,
    weather: watch::Receiver<Weather>,
    rng: Rng,
}

impl Pump {
    async fn run(&mut self, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) -> End {
        let mut piece = vec![0; PIECE];
        loop {
            let read = tokio::select! {
                read = from.read(&mut piece) => read,
                _ = self.weather.changed() => {
                    match self.strike(to).await {
                        None => continue,
                        Some(end) => return end,
                    }
                }
            };
            let Ok(count @ 1..) = read else {
                // Fails where the other side is gone already.
                let _ = to.shutdown().await;
                return if read.is_ok() { End::Closed } else { End::Reset };
            };
            if let Some(end) = self.pass(&piece[..count], to).await {
                return end;
            }
        }
    }

    /// What a change of the weather does to a connection on which nothing happens.
    async fn strike(&mut self, to: &mut OwnedWriteHalf) -> Option<End> {
        let weather = *self.weather.borrow_and_update();
        match weather {
            Weather::Reset => Some(End::Reset),
            Weather::HalfClose(way) if way == self.way => {
                let _ = to.shutdown().await;
                Some(End::Closed)
            }
            _ => None,
        }
    }

    async fn pass(&mut self, piece: &[u8], to: &mut OwnedWriteHalf) -> Option<End> {
        let mut weather = *self.weather.borrow_and_update();
        while weather == Weather::Stall {
            if self.weather.changed().await.is_err() {
                return Some(End::Cut);
            }
            weather = *self.weather.borrow_and_update();
        }
        let written = match weather {
            Weather::Reset => return Some(End::Reset),
            Weather::Truncate if self.way == Way::Down => {
                let cut = self.rng.below(piece.len());
                let _ = to.write_all(&piece[..cut]).await;
                let _ = to.shutdown().await;
                return Some(End::Cut);
            }
            Weather::HalfClose(way) if way == self.way => {
                let _ = to.shutdown().await;
                return Some(End::Closed);
            }
            Weather::Drip => self.drip(piece, to).await,
            Weather::Delay(delay) => {
                tokio::time::sleep(delay).await;
                to.write_all(piece).await
            }
            _ => to.write_all(piece).await,
        };
        written.err().map(|_| End::Reset)
    }

    async fn drip(&mut self, piece: &[u8], to: &mut OwnedWriteHalf) -> io::Result<()> {
        let mut rest = piece;
        while !rest.is_empty() {
            if *self.weather.borrow() != Weather::Drip {
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

    const WORDS: &[u8] = b"some words that are long enough to be cut";

    /// What a client reads of an echo, and whether it reads to the end of the connection.
    async fn echoed(weather: Weather) -> (Vec<u8>, bool) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = Proxy::start(server.local_addr().unwrap(), Rng::of(1, "")).unwrap();
        proxy.set(weather);
        tokio::spawn(async move {
            while let Ok((connection, _)) = server.accept().await {
                let (mut from, mut to) = connection.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await });
            }
        });
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let _ = client.write_all(WORDS).await;
        let _ = client.shutdown().await;
        let mut read = Vec::new();
        let ended = client.read_to_end(&mut read).await.is_ok();
        (read, ended)
    }

    #[tokio::test]
    async fn every_weather_does_what_it_says() {
        let whole = (WORDS.to_vec(), true);
        assert_eq!(echoed(Weather::Calm).await, whole);
        assert_eq!(echoed(Weather::Drip).await, whole);
        assert_eq!(echoed(Weather::Delay(Duration::from_millis(1))).await, whole);
        let (read, ended) = echoed(Weather::Truncate).await;
        assert!(ended && read.len() < WORDS.len() && WORDS.starts_with(&read), "{read:?}");
        assert_eq!(echoed(Weather::HalfClose(Way::Down)).await, (Vec::new(), true));
        assert_eq!(echoed(Weather::HalfClose(Way::Up)).await, (Vec::new(), true));
        assert_eq!(echoed(Weather::Reset).await, (Vec::new(), false));
    }

    #[tokio::test]
    async fn a_stall_holds_back_and_loses_nothing() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = Proxy::start(server.local_addr().unwrap(), Rng::of(1, "")).unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let (mut at_server, _) = server.accept().await.unwrap();
        proxy.set(Weather::Stall);
        client.write_all(WORDS).await.unwrap();
        let mut read = vec![0; WORDS.len()];
        let early = tokio::time::timeout(Duration::from_millis(50), at_server.read_exact(&mut read)).await;
        assert!(early.is_err());
        proxy.set(Weather::Calm);
        at_server.read_exact(&mut read).await.unwrap();
        assert_eq!(read, WORDS);
    }

    #[tokio::test]
    async fn a_closed_proxy_refuses() {
        let proxy = Proxy::start(([127, 0, 0, 1], 9).into(), Rng::of(1, "")).unwrap();
        proxy.close();
        while TcpStream::connect(proxy.address()).await.is_ok() {
            tokio::task::yield_now().await;
        }
        proxy.open().await.unwrap();
        assert!(TcpStream::connect(proxy.address()).await.is_ok());
    }
}
