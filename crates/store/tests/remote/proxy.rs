//! A line to the server that can be cut at the worst moment.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// What happens to the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It never reaches the server.
    Request = 1,
    /// The server does it, and its answer is lost.
    Answer = 2,
    /// The server does it, and its answer breaks off in the middle.
    Word = 3,
    /// The server does it, and from then on nothing is heard on this line, which stays open.
    Silence = 4,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    next: Arc<AtomicUsize>,
    is_shut: Arc<AtomicBool>,
}

impl Proxy {
    /// Ends with the test process.
    pub(crate) fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let next: Arc<AtomicUsize> = Arc::default();
        let is_shut: Arc<AtomicBool> = Arc::default();
        let (fault, shut) = (Arc::clone(&next), Arc::clone(&is_shut));
        thread::spawn(move || {
            for client in listener.incoming() {
                while shut.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server))) else {
                    continue;
                };
                let (upstream, downstream) = (copy_of(&server), copy_of(&client));
                let (up, down) = (Arc::clone(&fault), Arc::clone(&fault));
                thread::spawn(move || carry(client, upstream, &[Cut::Request], &up));
                thread::spawn(move || {
                    carry(server, downstream, &[Cut::Answer, Cut::Word, Cut::Silence], &down)
                });
            }
        });
        Self { port, next, is_shut }
    }

    /// Keeps new lines waiting until it is told otherwise.
    pub(crate) fn shut(&self, is_shut: bool) {
        self.is_shut.store(is_shut, Ordering::SeqCst);
    }

    pub(crate) fn cut(&self, cut: Cut) {
        self.next.store(cut as usize, Ordering::SeqCst);
    }

    /// Whether the fault is still to come.
    pub(crate) fn waits(&self) -> bool {
        self.next.load(Ordering::SeqCst) != 0
    }
}

fn copy_of(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a second handle")
}

fn carry(mut from: TcpStream, mut to: TcpStream, cuts: &[Cut], fault: &AtomicUsize) {
    let mut buffer = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let is_due = |cut: &&Cut| {
            fault.compare_exchange(**cut as usize, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        if let Some(cut) = cuts.iter().find(is_due) {
            match cut {
                Cut::Word => drop(to.write_all(&buffer[..length / 2])),
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
