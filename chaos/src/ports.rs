//! Addresses that stay ours while nobody listens on them.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Linux gives ports from 32,768 on to whoever connects. Somebody who listens there, goes, and comes back may find that a
/// connection has the port; and here everybody goes and comes back.
const PORTS: Range<u16> = 20_000..32_000;

/// Runs at the same time begin so far apart.
const APART: usize = 97;

/// Listens on a port of this machine that nobody has, and that no connection gets.
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
    fn ports_are_free_and_not_for_those_who_connect() {
        let held: Vec<TcpListener> = (0..20).map(|_| listen().unwrap()).collect();
        let mut ports: Vec<u16> = held.iter().map(|one| one.local_addr().unwrap().port()).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }
}
