//! Ports for processes that stop and start again: no outgoing connection can take them meanwhile.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Linux assigns ports from 32,768 on to outgoing connections. A process that listens on such a
/// port and restarts may find it in use, and runs restart every process.
const PORTS: Range<u16> = 20_000..32_000;

/// Distance between the first ports of concurrent runs, times the distance of their process ids.
const APART: usize = 97;

/// Listens on a free port that no outgoing connection gets. Fails if there is none.
pub(crate) fn listen() -> io::Result<TcpListener> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let first = std::process::id() as usize * APART;
    for _ in PORTS {
        let no = first + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (no % PORTS.len()) as u16;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_never_assigned_to_connections() {
        let held: Vec<TcpListener> = (0..20).map(|_| listen().unwrap()).collect();
        let mut ports: Vec<u16> = held.iter().map(|one| one.local_addr().unwrap().port()).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }
}
