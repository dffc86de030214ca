//! A TCP proxy in front of the server that can cut a connection at the worst moment.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// What happens to the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The request does not reach the server.
    Request = 1,
    /// The server executes the request, and its reply is lost.
    Answer = 2,
    /// The server executes the request, and its reply breaks off in the middle.
    PartOfAnswer = 3,
    /// The server executes the request. From then on the connection stays open but transfers
    /// nothing.
    Silence = 4,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    next: Arc<AtomicUsize>,
    holds_new_connections: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts the proxy. It ends with the test process.
    pub(crate) fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let next: Arc<AtomicUsize> = Arc::default();
        let holds_new_connections: Arc<AtomicBool> = Arc::default();
        let (fault, hold_new_connections) = (Arc::clone(&next), Arc::clone(&holds_new_connections));
        thread::spawn(move || {
            for client in listener.incoming() {
                while hold_new_connections.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server))) else {
                    continue;
                };
                let (upstream, downstream) = (copy_of(&server), copy_of(&client));
                let (up, down) = (Arc::clone(&fault), Arc::clone(&fault));
                thread::spawn(move || relay(client, upstream, &[Cut::Request], &up));
                thread::spawn(move || {
                    relay(server, downstream, &[Cut::Answer, Cut::PartOfAnswer, Cut::Silence], &down)
                });
            }
        });
        Self { port, next, holds_new_connections }
    }

    /// Keeps new connections waiting, or lets them through again.
    pub(crate) fn hold_new_connections(&self, holds_new_connections: bool) {
        self.holds_new_connections.store(holds_new_connections, Ordering::SeqCst);
    }

    pub(crate) fn cut(&self, cut: Cut) {
        self.next.store(cut as usize, Ordering::SeqCst);
    }

    /// Returns true if the fault has not happened yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.next.load(Ordering::SeqCst) != 0
    }
}

fn copy_of(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a second handle")
}

fn relay(mut from: TcpStream, mut to: TcpStream, cuts: &[Cut], fault: &AtomicUsize) {
    let mut buffer = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let is_due = |cut: &&Cut| {
            fault.compare_exchange(**cut as usize, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        if let Some(cut) = cuts.iter().find(is_due) {
            match cut {
                Cut::PartOfAnswer => drop(to.write_all(&buffer[..length / 2])),
                Cut::Silence => while let Ok(1..) = from.read(&mut buffer) {},
                Cut::Request | Cut::Answer => {}
            }
            break;
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
