//! Who serves connections. A connection stays with the thread that it was given to, and so does whatever is done for it at once:
//! nobody has to be woken on another thread.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Threads, which end with this; or none, and the runtime that accepts does it.
#[derive(Debug)]
pub(super) struct Crew {
    hands: Vec<Hand>,
    _end: DropGuard,
}

/// One thread, with a runtime of its own.
#[derive(Debug)]
struct Hand {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

impl Crew {
    pub(super) fn start(threads: usize) -> io::Result<Self> {
        let end = CancellationToken::new();
        let hands = (0..threads).map(|no| Hand::start(no, end.clone())).collect::<io::Result<_>>()?;
        Ok(Self { hands, _end: end.drop_guard() })
    }

    /// Has a connection served by whoever has the fewest.
    pub(super) fn serve<F>(&self, stream: TcpStream, serve: impl FnOnce(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let fewest = self.hands.iter().min_by_key(|hand| hand.connections.load(Ordering::Relaxed));
        let Some(hand) = fewest else {
            tokio::spawn(serve(stream));
            return;
        };
        let one = One::more(&hand.connections);
        // A socket tells its news to the runtime that it was made known to.
        let stream = stream.into_std();
        hand.runtime.spawn(async move {
            match stream.and_then(TcpStream::from_std) {
                Ok(stream) => serve(stream).await,
                Err(error) => tracing::warn!(%error, "a connection could not be handed over"),
            }
            drop(one);
        });
    }
}

impl Hand {
    fn start(no: usize, end: CancellationToken) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new().name(format!("connections-{no}")).spawn(move || {
            runtime.block_on(end.cancelled());
            // What does not end must not keep the process alive.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, connections: Arc::default() })
    }
}

/// A connection, while it counts.
struct One(Arc<AtomicUsize>);

impl One {
    fn more(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
