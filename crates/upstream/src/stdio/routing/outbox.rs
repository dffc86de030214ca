//! The outbox: a bounded queue of messages from a process to one reader. Adding a message never
//! waits.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use steadfast_engine::{Class, MessageQueue};
use steadfast_wire::Mutex;

const MAX_MESSAGES: usize = 256;
/// The maximum size of all messages in an outbox. A single message may be larger if the outbox
/// holds nothing else.
const MAX_BYTES: usize = 4 << 20;

/// Why an outbox gets no more messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The process has answered the request.
    Answer(Bytes),
    /// The request failed before its answer.
    Broken(String),
    /// The session was closed, or another reader has taken over.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushResult {
    Queued,
    /// Added. This many older notifications were dropped for it.
    Displaced(usize),
    /// There is no room, or the outbox has ended. No message was dropped.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Message(Bytes),
    End(End),
}

#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    messages: MessageQueue,
    end: Option<End>,
    waker: Option<Waker>,
    /// The number of the newest reader. Earlier readers get `Closed`.
    newest_reader: u64,
}

impl Outbox {
    /// Adds a notification ([`Class::Droppable`]) or a server request. If there is no room, drops
    /// the oldest notifications. Never drops a server request.
    pub(crate) fn push(&self, class: Class, text: Bytes) -> PushResult {
        let mut inner = self.0.lock();
        if inner.end.is_some() {
            return PushResult::Refused;
        }
        // Checked first, so that a message that is refused displaces nothing.
        let (kept, kept_bytes) = inner.messages.not_droppable();
        if kept >= MAX_MESSAGES || (kept > 0 && kept_bytes + text.len() > MAX_BYTES) {
            return PushResult::Refused;
        }
        let dropped = inner.messages.make_room(text.len(), MAX_MESSAGES, MAX_BYTES);
        inner.messages.push(class, text);
        inner.wake();
        if dropped == 0 { PushResult::Queued } else { PushResult::Displaced(dropped) }
    }

    /// Ends the outbox. Only the first end counts. The reader gets the remaining messages first.
    pub(crate) fn end(&self, end: End) {
        let mut inner = self.0.lock();
        inner.end.get_or_insert(end);
        inner.wake();
    }

    /// Returns a new reader. Earlier readers get `End::Closed`.
    pub(crate) fn reader(self: &Arc<Self>) -> OutboxReader {
        let mut inner = self.0.lock();
        inner.newest_reader += 1;
        inner.wake();
        OutboxReader { outbox: Arc::clone(self), number: inner.newest_reader }
    }
}

impl Inner {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

#[derive(Debug)]
pub(crate) struct OutboxReader {
    outbox: Arc<Outbox>,
    number: u64,
}

impl OutboxReader {
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Item> {
        let mut inner = self.outbox.0.lock();
        if inner.newest_reader != self.number {
            return Poll::Ready(Item::End(End::Closed));
        }
        if let Some((_, text)) = inner.messages.pop() {
            return Poll::Ready(Item::Message(text));
        }
        match &inner.end {
            Some(end) => Poll::Ready(Item::End(end.clone())),
            None => {
                inner.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Waits until there is a message or the end. Returns the end if no message precedes it. Only
    /// for the outbox of a request, which has one reader.
    pub(crate) async fn wait_first(&mut self) -> Option<End> {
        poll_fn(|cx| {
            let mut inner = self.outbox.0.lock();
            if !inner.messages.is_empty() {
                return Poll::Ready(None);
            }
            match &inner.end {
                Some(end) => Poll::Ready(Some(end.clone())),
                None => {
                    inner.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push_notification(outbox: &Outbox, n: usize) -> PushResult {
        outbox.push(Class::Droppable, n.to_string().into())
    }

    fn push_server_request(outbox: &Outbox) -> PushResult {
        outbox.push(Class::ServerRequest, "request".into())
    }

    fn read(reader: &mut OutboxReader) -> Option<Item> {
        match reader.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_full_outbox_drops_the_oldest_notifications() {
        let outbox = Arc::new(Outbox::default());
        assert_eq!(push_server_request(&outbox), PushResult::Queued);
        for n in 1..MAX_MESSAGES {
            assert_eq!(push_notification(&outbox, n), PushResult::Queued, "{n}");
        }
        assert_eq!(push_notification(&outbox, MAX_MESSAGES), PushResult::Displaced(1));
        let mut reader = outbox.reader();
        assert_eq!(read(&mut reader), Some(Item::Message("request".into())));
        assert_eq!(read(&mut reader), Some(Item::Message("2".into())));
    }

    #[test]
    fn a_server_request_without_room_is_refused() {
        let outbox = Arc::new(Outbox::default());
        for _ in 0..MAX_MESSAGES {
            assert_eq!(push_server_request(&outbox), PushResult::Queued);
        }
        assert_eq!(push_server_request(&outbox), PushResult::Refused);
        assert_eq!(push_notification(&outbox, 1), PushResult::Refused);
    }

    #[test]
    fn a_refused_server_request_displaces_nothing() {
        let outbox = Arc::new(Outbox::default());
        let push = |size: usize| outbox.push(Class::ServerRequest, vec![b'x'; size].into());
        push_notification(&outbox, 1);
        assert_eq!(push(MAX_BYTES / 2), PushResult::Queued);
        assert_eq!(push(MAX_BYTES / 2 + 1), PushResult::Refused);
        assert!(read(&mut outbox.reader()) == Some(Item::Message("1".into())));
    }

    #[test]
    fn bytes_are_bounded_but_one_message_always_fits() {
        let outbox = Arc::new(Outbox::default());
        let large = || outbox.push(Class::Droppable, vec![b'x'; MAX_BYTES + 1].into());
        assert_eq!(large(), PushResult::Queued);
        assert_eq!(push_notification(&outbox, 1), PushResult::Displaced(1));
        assert_eq!(large(), PushResult::Displaced(1));
    }

    #[test]
    fn the_end_comes_once_and_after_the_messages() {
        let outbox = Arc::new(Outbox::default());
        push_notification(&outbox, 1);
        outbox.end(End::Answer("a".into()));
        outbox.end(End::Closed);
        assert_eq!(push_notification(&outbox, 2), PushResult::Refused);
        let mut reader = outbox.reader();
        assert_eq!(read(&mut reader), Some(Item::Message("1".into())));
        assert_eq!(read(&mut reader), Some(Item::End(End::Answer("a".into()))));
    }

    #[test]
    fn a_newer_reader_ends_the_older() {
        let outbox = Arc::new(Outbox::default());
        let mut old = outbox.reader();
        assert_eq!(read(&mut old), None);
        let mut new = outbox.reader();
        push_notification(&outbox, 1);
        assert_eq!(read(&mut old), Some(Item::End(End::Closed)));
        assert_eq!(read(&mut new), Some(Item::Message("1".into())));
    }
}
