//! Connections that nobody drives but whoever uses them: a request, its connection and its answer are one task, so nothing
//! has to be handed from one to another and nobody has to be woken for it.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Connection, SendRequest};
use hyper::rt::{Read, Write};
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::BrokenBody;

/// How long a connection is kept for the next request. Node and uvicorn close theirs after 5 s: a request that is under way
/// then is lost, and nobody can tell whether it was begun.
const MAX_IDLE: Duration = Duration::from_secs(4);

/// Connections that are kept for the next request.
const MAX_KEPT: usize = 1024;

/// What a connection has to be made of.
pub trait Io: Read + Write + Unpin + Send + 'static {}
impl<T: Read + Write + Unpin + Send + 'static> Io for T {}

/// Connections that wait for a request.
#[derive(Debug)]
pub(super) struct Pool<T: Io>(Mutex<Kept<T>>);

#[derive(Debug)]
struct Kept<T: Io> {
    /// The one that was used last is at the end.
    idle: Vec<Idle<T>>,
    /// Somebody looks after them.
    is_swept: bool,
}

#[derive(Debug)]
struct Idle<T: Io> {
    line: Box<Line<T>>,
    since: Instant,
}

impl<T: Io> Default for Pool<T> {
    fn default() -> Self {
        Self(Mutex::new(Kept { idle: Vec::new(), is_swept: false }))
    }
}

impl<T: Io> Pool<T> {
    /// A connection to this host that can be used here. Those of another runtime would do, but each of their answers had to be told
    /// from one thread to another.
    pub(super) fn take(&self, host: &str) -> Option<Box<Line<T>>> {
        let home = Handle::current().id();
        loop {
            let mut kept = self.kept();
            let at = kept.idle.iter().rposition(|idle| idle.line.home == home && idle.line.host == host)?;
            let Idle { mut line, since } = kept.idle.remove(at);
            drop(kept);
            if since.elapsed() < MAX_IDLE && line.is_usable() {
                return Some(line);
            }
        }
    }

    fn put(self: &Arc<Self>, line: Box<Line<T>>) {
        let mut kept = self.kept();
        if kept.idle.len() >= MAX_KEPT {
            return;
        }
        kept.idle.push(Idle { line, since: Instant::now() });
        if !std::mem::replace(&mut kept.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Lets go of connections that have waited too long. Gives whether any are left.
    fn let_go(&self) -> bool {
        let mut kept = self.kept();
        let (old, young) =
            std::mem::take(&mut kept.idle).into_iter().partition(|idle| idle.since.elapsed() >= MAX_IDLE);
        kept.idle = young;
        kept.is_swept = !kept.idle.is_empty();
        let is_swept = kept.is_swept;
        drop(kept);
        let old: Vec<Idle<T>> = old;
        drop(old);
        is_swept
    }

    fn kept(&self) -> MutexGuard<'_, Kept<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sweep<T: Io>(pool: Weak<Pool<T>>) {
    loop {
        tokio::time::sleep(MAX_IDLE).await;
        match pool.upgrade() {
            Some(pool) if pool.let_go() => {}
            _ => return,
        }
    }
}

/// One connection. It makes progress while it is polled, and only then.
#[derive(Debug)]
pub(super) struct Line<T: Io> {
    host: String,
    /// The runtime that its socket tells its news to.
    home: Id,
    sender: SendRequest<Full<Bytes>>,
    /// Gone when it has ended.
    connection: Option<Connection<T, Full<Bytes>>>,
}

/// Why a request has no answer.
pub(super) enum Failed {
    /// Nothing of it was sent, and here it is again.
    NotSent(Box<Request<Full<Bytes>>>),
    Broken(hyper::Error),
}

impl<T: Io> Line<T> {
    pub(super) fn new(
        host: String,
        sender: SendRequest<Full<Bytes>>,
        connection: Connection<T, Full<Bytes>>,
    ) -> Self {
        Self { host, home: Handle::current().id(), sender, connection: Some(connection) }
    }

    /// Lets the connection do what it can.
    fn drive(&mut self, context: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            // How it ended, whoever waits for something of it is told.
            && Pin::new(connection).poll(context).is_ready()
        {
            self.connection = None;
        }
    }

    /// Whether the server has not closed it meanwhile.
    fn is_usable(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.drive(&mut context);
        self.connection.is_some() && matches!(self.sender.poll_ready(&mut context), Poll::Ready(Ok(())))
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn exchange(
        mut self: Box<Self>,
        request: Request<Full<Bytes>>,
        pool: &Arc<Pool<T>>,
    ) -> Result<Response<Answer<T>>, Failed> {
        let mut sent = std::pin::pin!(self.sender.try_send_request(request));
        let answered = std::future::poll_fn(|context| {
            self.drive(context);
            sent.as_mut().poll(context)
        });
        match answered.await {
            Ok(response) => {
                let pool = Arc::downgrade(pool);
                Ok(response.map(|body| Answer { body, line: Some(self), pool }))
            }
            Err(mut error) => Err(match error.take_message() {
                Some(request) => Failed::NotSent(Box::new(request)),
                None => Failed::Broken(error.into_error()),
            }),
        }
    }
}

/// The body of an answer. Read to its end, it gives its connection back; dropped before, it closes it.
#[derive(Debug)]
pub(super) struct Answer<T: Io> {
    body: Incoming,
    line: Option<Box<Line<T>>>,
    pool: Weak<Pool<T>>,
}

impl<T: Io> http_body::Body for Answer<T> {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        let this = self.get_mut();
        if let Some(line) = &mut this.line {
            line.drive(context);
        }
        let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(context));
        if frame.is_none()
            && let (Some(line), Some(pool)) = (this.line.take(), this.pool.upgrade())
            && line.connection.is_some()
        {
            pool.put(line);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|error| BrokenBody(super::chain(&error)))))
    }

    fn is_end_stream(&self) -> bool {
        // Not before it was asked for what follows: that is when it gives its connection back.
        self.line.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
