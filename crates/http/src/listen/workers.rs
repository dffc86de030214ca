//! Worker threads for connections. Each thread has a runtime of its own.
//!
//! A connection stays on one thread, and so do the calls that it starts: their timers, their
//! sockets to the upstream server and their tasks all belong to that thread's runtime, so that a
//! call wakes no other thread. A call outlives its connection. The threads therefore outlive the
//! accept loops: they end when the last clone of [`Workers`] is dropped, which must be after the
//! last call has ended.
//!
//! `cargo xtask bench mechanisms` compares them with one ordinary runtime. With two threads on two
//! cores that other programs used as well, a call took 6 to 10 % less processor time (41 us
//! instead of 46 us, 43 us instead of 46 us), and the gateway answered 1.4 to 1.8 times as many.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, thread};

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The threads that serve connections. The default has none: then the runtime that accepts a
/// connection also serves it. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Workers {
    threads: Arc<[Worker]>,
    _end: Option<Arc<DropGuard>>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

impl Workers {
    pub fn start(threads: usize) -> io::Result<Self> {
        let end = CancellationToken::new();
        let threads = (0..threads).map(|no| Worker::start(no, end.clone())).collect::<io::Result<_>>()?;
        Ok(Self { threads, _end: Some(Arc::new(end.drop_guard())) })
    }

    /// Serves a connection on the thread with the fewest connections.
    pub(super) fn serve<F>(&self, stream: TcpStream, serve: impl FnOnce(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let fewest = self.threads.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
        let Some(worker) = fewest else {
            tokio::spawn(serve(stream));
            return;
        };
        let counted = Counted::new(&worker.connections);
        // A socket reports its readiness to the runtime that it is registered with.
        let stream = stream.into_std();
        worker.runtime.spawn(async move {
            match stream.and_then(TcpStream::from_std) {
                Ok(stream) => serve(stream).await,
                Err(error) => {
                    tracing::warn!(%error, "could not give a connection to its worker thread");
                }
            }
            drop(counted);
        });
    }
}

impl Worker {
    fn start(no: usize, end: CancellationToken) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new().name(format!("connections-{no}")).spawn(move || {
            runtime.block_on(end.cancelled());
            // A task that never ends must not keep the process alive.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, connections: Arc::default() })
    }
}

/// Counts a connection until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
