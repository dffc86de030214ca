//! Every byte that a store holds, or has ever sent to its server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use steadfast::StoreUrl;

use super::place::{Backing, Place, address};

/// A place whose bytes a test can search.
pub(crate) struct Recorded {
    pub(crate) place: Place,
    /// For each connection to the server, what the store has sent on it.
    sent: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Recorded {
    /// A place where no session has been. A store that has a server reaches it through a proxy that
    /// records.
    pub(crate) fn new(backing: Backing) -> Self {
        let sent = Arc::default();
        let place = match address(backing) {
            None => backing.place(),
            Some(address) => {
                let port = port_of(&address);
                let through = record(port, Arc::clone(&sent));
                let address = address.replacen(&format!(":{port}"), &format!(":{through}"), 1);
                Place::At(address.parse::<StoreUrl>().expect("an address"))
            }
        };
        Self { place, sent }
    }

    /// Whether these bytes are in a file of the store, or in what it has sent to its server.
    pub(crate) fn contains(&self, bytes: &[u8]) -> bool {
        let has = |hay: &Vec<u8>| hay.windows(bytes.len()).any(|window| window == bytes);
        match &self.place {
            Place::File(folder) => {
                let files = std::fs::read_dir(folder.path()).expect("the folder of the store");
                let contents =
                    files.map(|file| std::fs::read(file.expect("a file").path()).expect("its bytes"));
                contents.into_iter().any(|content| has(&content))
            }
            Place::Memory | Place::At(_) => {
                self.sent.lock().unwrap_or_else(PoisonError::into_inner).iter().any(has)
            }
        }
    }
}

fn port_of(address: &str) -> u16 {
    let (_, rest) = address.split_once("127.0.0.1:").expect("the address of a test server");
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().expect("a port")
}

/// Starts a proxy to a port and gives its own. Its threads end with their connections.
fn record(port: u16, sent: Arc<Mutex<Vec<Vec<u8>>>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let own = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for store in listener.incoming().flatten() {
            let server = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
            let mut all = sent.lock().unwrap_or_else(PoisonError::into_inner);
            let (number, sent) = (all.len(), Arc::clone(&sent));
            all.push(Vec::new());
            drop(all);
            let back = (server.try_clone().expect("a socket"), store.try_clone().expect("a socket"));
            std::thread::spawn(move || copy(back.0, back.1, |_| ()));
            std::thread::spawn(move || {
                copy(store, server, |bytes| {
                    sent.lock().unwrap_or_else(PoisonError::into_inner)[number].extend_from_slice(bytes);
                });
            });
        }
    });
    own
}

fn copy(mut from: TcpStream, mut to: TcpStream, record: impl Fn(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        record(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
