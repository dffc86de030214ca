//! A proxy that records what passes and cuts connections: after a chosen event of a response, or
//! all of them at once.

mod exchanges;
mod request;
mod response;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use exchanges::Exchanges;
pub(crate) use request::Request;

/// The proxy listens until the process ends.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    upstream: Mutex<Option<SocketAddr>>,
    exchanges: Mutex<Exchanges>,
    /// The client's end of every open connection, by number.
    open: Mutex<HashMap<usize, TcpStream>>,
    connections: AtomicUsize,
}

impl Proxy {
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                // After any error, both ends of the connection see it closed.
                thread::spawn(move || shared.serve(client));
            }
        });
        Ok(Self { address, shared })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn point_at(&self, upstream: SocketAddr) {
        *self.shared.upstream.lock().unwrap_or_else(PoisonError::into_inner) = Some(upstream);
    }

    pub(crate) fn exchanges(&self) -> MutexGuard<'_, Exchanges> {
        self.shared.exchanges()
    }

    /// Cuts every connection that is open now.
    pub(crate) fn cut_all(&self) {
        for (_, connection) in self.shared.open().drain() {
            // Fails if the client has closed its end.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn exchanges(&self) -> MutexGuard<'_, Exchanges> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<usize, TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(self: Arc<Self>, client: TcpStream) -> io::Result<()> {
        let upstream = *self.upstream.lock().unwrap_or_else(PoisonError::into_inner);
        let server = TcpStream::connect(upstream.ok_or(io::ErrorKind::NotConnected)?)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        self.open().insert(number, client.try_clone()?);
        let exchange = Arc::new(AtomicUsize::new(usize::MAX));
        let downstream = {
            let (shared, exchange) = (Arc::clone(&self), Arc::clone(&exchange));
            let (mut server, mut client) = (server.try_clone()?, client.try_clone()?);
            thread::spawn(move || {
                // An error ends the connection, which both sides see.
                let _ = shared.pass_responses(&mut server, &mut client, &exchange);
                close(&server, &client);
            })
        };
        let passed = self.pass_requests(&mut &client, &mut &server, &exchange);
        close(&server, &client);
        self.open().remove(&number);
        // It ends at once, because both sockets are closed. A panic in it concerns this connection
        // only.
        let _ = downstream.join();
        passed
    }

    /// Passes a request on when it is complete and recorded, so that its response finds the record.
    fn pass_requests(
        &self,
        client: &mut impl Read,
        server: &mut impl Write,
        exchange: &AtomicUsize,
    ) -> io::Result<()> {
        let mut ahead = Vec::new();
        while let Some(request) = Request::read(client, &mut ahead)? {
            exchange.store(self.exchanges().record_request(&request), Ordering::Release);
            server.write_all(request.raw())?;
        }
        Ok(())
    }

    /// A client sends the next request of a connection after the response to the last one. So a
    /// response belongs to the latest request.
    fn pass_responses(
        &self,
        server: &mut impl Read,
        client: &mut impl Write,
        exchange: &AtomicUsize,
    ) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        loop {
            let count = server.read(&mut bytes)?;
            let cut = self.exchanges().record_response(exchange.load(Ordering::Acquire), &bytes[..count]);
            client.write_all(&bytes[..cut.unwrap_or(count)])?;
            self.exchanges().record_delivery(exchange.load(Ordering::Acquire));
            if count == 0 || cut.is_some() {
                return Ok(());
            }
        }
    }
}

fn close(server: &TcpStream, client: &TcpStream) {
    // Fails if the other side has closed its end.
    let _ = server.shutdown(Shutdown::Both);
    let _ = client.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &str = "POST / HTTP/1.1\r\nContent-Length: 23\r\n\r\n{\"method\":\"tools/call\"}";
    const RESPONSE: &str = "HTTP/1.1 200 OK\r\n\r\nid: 0\ndata: \n\nid: 1\ndata: \n\n";

    #[test]
    fn bytes_pass_until_the_cut() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::start().unwrap();
        proxy.point_at(listener.local_addr().unwrap());
        thread::spawn(move || {
            for server in listener.incoming() {
                let mut server = server.unwrap();
                let mut request = vec![0; REQUEST.len()];
                server.read_exact(&mut request).unwrap();
                assert_eq!(request, REQUEST.as_bytes());
                server.write_all(RESPONSE.as_bytes()).unwrap();
            }
        });
        let post = || {
            let mut client = TcpStream::connect(proxy.address()).unwrap();
            client.write_all(REQUEST.as_bytes()).unwrap();
            let mut response = String::new();
            client.read_to_string(&mut response).unwrap();
            response
        };
        assert_eq!(post(), RESPONSE);
        proxy.exchanges().plan_cuts([1]);
        assert_eq!(post(), RESPONSE.trim_end_matches("id: 1\ndata: \n\n"));
        assert_eq!(post(), RESPONSE);
        let mut idle = TcpStream::connect(proxy.address()).unwrap();
        // The connection after the three above.
        while !proxy.shared.open().contains_key(&3) {
            thread::yield_now();
        }
        proxy.cut_all();
        assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    }
}
