//! A proxy that cuts connections in the middle of a response, at a chosen event.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::http::Request;
use super::journal::Journal;

/// Listens until the process ends.
#[derive(Clone, Debug)]
pub(super) struct Cutter {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    upstream: Mutex<Option<SocketAddr>>,
    journal: Mutex<Journal>,
}

impl Cutter {
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { upstream: Mutex::new(None), journal: Mutex::default() });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                // Whatever goes wrong with a connection, both of its ends see it closed.
                thread::spawn(move || shared.serve(client));
            }
        });
        Ok(Self { address, shared })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn point_at(&self, upstream: SocketAddr) {
        *self.shared.upstream.lock().unwrap_or_else(PoisonError::into_inner) = Some(upstream);
    }

    pub(super) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.shared.journal()
    }
}

impl Shared {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(self: Arc<Self>, client: TcpStream) -> io::Result<()> {
        let upstream = *self.upstream.lock().unwrap_or_else(PoisonError::into_inner);
        let server = TcpStream::connect(upstream.ok_or(io::ErrorKind::NotConnected)?)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let exchange = Arc::new(AtomicUsize::new(usize::MAX));
        let downstream = {
            let (shared, exchange) = (Arc::clone(&self), Arc::clone(&exchange));
            let (mut server, mut client) = (server.try_clone()?, client.try_clone()?);
            thread::spawn(move || {
                // The end of a connection is an end like any other here.
                let _ = shared.pass_responses(&mut server, &mut client, &exchange);
                close(&server, &client);
            })
        };
        let passed = self.pass_requests(&mut &client, &mut &server, &exchange);
        close(&server, &client);
        // It has nothing left to read.
        let _ = downstream.join();
        passed
    }

    /// A request is passed on when it is complete, so that its response finds it in the journal.
    fn pass_requests(
        &self,
        client: &mut impl Read,
        server: &mut impl Write,
        exchange: &AtomicUsize,
    ) -> io::Result<()> {
        let mut ahead = Vec::new();
        while let Some(request) = Request::read(client, &mut ahead)? {
            exchange.store(self.journal().begin(&request), Ordering::Release);
            server.write_all(request.raw())?;
        }
        Ok(())
    }

    /// Requests of a connection come one after another, so a response belongs to the latest.
    fn pass_responses(
        &self,
        server: &mut impl Read,
        client: &mut impl Write,
        exchange: &AtomicUsize,
    ) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        loop {
            let count = server.read(&mut bytes)?;
            let cut = self.journal().receive(exchange.load(Ordering::Acquire), &bytes[..count]);
            client.write_all(&bytes[..cut.unwrap_or(count)])?;
            if count == 0 || cut.is_some() {
                return Ok(());
            }
        }
    }
}

fn close(server: &TcpStream, client: &TcpStream) {
    // Fails where the other side was faster.
    let _ = server.shutdown(Shutdown::Both);
    let _ = client.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &str = "POST / HTTP/1.1\r\nContent-Length: 23\r\n\r\n{\"method\":\"tools/call\"}";
    const RESPONSE: &str = "HTTP/1.1 200 OK\r\n\r\nid: 0\ndata: \n\nid: 1\ndata: \n\n";

    #[test]
    fn bytes_pass_unless_they_are_cut() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let cutter = Cutter::start().unwrap();
        cutter.point_at(listener.local_addr().unwrap());
        thread::spawn(move || {
            for server in listener.incoming() {
                let mut server = server.unwrap();
                let mut request = vec![0; REQUEST.len()];
                server.read_exact(&mut request).unwrap();
                assert_eq!(request, REQUEST.as_bytes());
                server.write_all(RESPONSE.as_bytes()).unwrap();
            }
        });
        let ask = || {
            let mut client = TcpStream::connect(cutter.address()).unwrap();
            client.write_all(REQUEST.as_bytes()).unwrap();
            let mut response = String::new();
            client.read_to_string(&mut response).unwrap();
            response
        };
        assert_eq!(ask(), RESPONSE);
        cutter.journal().arm([1]);
        assert_eq!(ask(), RESPONSE.trim_end_matches("id: 1\ndata: \n\n"));
        assert_eq!(ask(), RESPONSE);
    }
}
