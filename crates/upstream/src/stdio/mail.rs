//! Messages of a program that wait for their one reader, in bounded memory. Whoever puts them there never waits.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

/// Messages that wait for one reader.
const MAX_LETTERS: usize = 256;
/// What they may have in all; a single one may be larger.
const MAX_BYTES: usize = 4 << 20;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Letter {
    Notification(Bytes),
    Ask(Bytes),
}

/// How it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With the answer to a request.
    Answer(Bytes),
    /// Before the answer.
    Broken(String),
    /// Nothing more will come.
    Over,
}

/// What a mailbox did with a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Kept,
    /// It is kept, and so many older notifications are not.
    Instead(usize),
    /// There is no room for it, or nobody will read it.
    Refused,
}

/// What a reader gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Message(Bytes),
    End(End),
}

#[derive(Debug, Default)]
pub(super) struct Mailbox(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    letters: VecDeque<Letter>,
    bytes: usize,
    end: Option<End>,
    waker: Option<Waker>,
    /// The newest reader; those before it have been told that it is over.
    reader: u64,
}

impl Mailbox {
    /// Keeps a message for the reader. Beyond the bound the oldest notifications go; an ask is never thrown away.
    pub(super) fn put(&self, letter: Letter) -> Put {
        let mut inner = self.lock();
        if inner.end.is_some() {
            return Put::Refused;
        }
        let mut missed = 0;
        while !inner.letters.is_empty() && inner.is_full_with(&letter) {
            let oldest = inner.letters.iter().position(|letter| matches!(letter, Letter::Notification(_)));
            match (oldest.and_then(|at| inner.letters.remove(at)), &letter) {
                (Some(old), _) => {
                    inner.bytes -= old.text().len();
                    missed += 1;
                }
                (None, _) => return Put::Refused,
            }
        }
        inner.bytes += letter.text().len();
        inner.letters.push_back(letter);
        inner.wake();
        if missed == 0 { Put::Kept } else { Put::Instead(missed) }
    }

    /// Ends it, once. What waits is still read before.
    pub(super) fn end(&self, end: End) {
        let mut inner = self.lock();
        inner.end.get_or_insert(end);
        inner.wake();
    }

    /// A reader, after which those before get nothing more.
    pub(super) fn reader(self: &Arc<Self>) -> Reader {
        let mut inner = self.lock();
        inner.reader += 1;
        inner.wake();
        Reader { mailbox: Arc::clone(self), number: inner.reader }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn is_full_with(&self, letter: &Letter) -> bool {
        self.letters.len() >= MAX_LETTERS || self.bytes + letter.text().len() > MAX_BYTES
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Letter {
    pub(super) fn text(&self) -> &Bytes {
        match self {
            Self::Notification(text) | Self::Ask(text) => text,
        }
    }
}

/// Reads a mailbox.
#[derive(Debug)]
pub(super) struct Reader {
    mailbox: Arc<Mailbox>,
    number: u64,
}

impl Reader {
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let mut inner = self.mailbox.lock();
        if inner.reader != self.number {
            return Poll::Ready(Next::End(End::Over));
        }
        if let Some(letter) = inner.letters.pop_front() {
            inner.bytes -= letter.text().len();
            return Poll::Ready(Next::Message(letter.text().clone()));
        }
        match &inner.end {
            Some(end) => Poll::Ready(Next::End(end.clone())),
            None => {
                inner.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Waits until there is something to read. Gives the end if that is all there is.
    pub(super) async fn first(&mut self) -> Option<End> {
        poll_fn(|cx| {
            let mut inner = self.mailbox.lock();
            if !inner.letters.is_empty() {
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

    fn note(n: usize) -> Letter {
        Letter::Notification(n.to_string().into())
    }

    fn read(reader: &mut Reader) -> Option<Next> {
        match reader.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        }
    }

    #[test]
    fn beyond_the_bound_the_oldest_notifications_go() {
        let mailbox = Arc::new(Mailbox::default());
        assert_eq!(mailbox.put(Letter::Ask("ask".into())), Put::Kept);
        for n in 1..MAX_LETTERS {
            assert_eq!(mailbox.put(note(n)), Put::Kept, "{n}");
        }
        assert_eq!(mailbox.put(note(MAX_LETTERS)), Put::Instead(1));
        let mut reader = mailbox.reader();
        assert_eq!(read(&mut reader), Some(Next::Message("ask".into())));
        assert_eq!(read(&mut reader), Some(Next::Message("2".into())));
    }

    #[test]
    fn an_ask_that_finds_no_room_is_refused() {
        let mailbox = Arc::new(Mailbox::default());
        for _ in 0..MAX_LETTERS {
            assert_eq!(mailbox.put(Letter::Ask("ask".into())), Put::Kept);
        }
        assert_eq!(mailbox.put(Letter::Ask("ask".into())), Put::Refused);
        assert_eq!(mailbox.put(note(1)), Put::Refused);
    }

    #[test]
    fn bytes_are_bounded_but_one_message_always_fits() {
        let mailbox = Arc::new(Mailbox::default());
        let large = || Letter::Notification(vec![b'x'; MAX_BYTES + 1].into());
        assert_eq!(mailbox.put(large()), Put::Kept);
        assert_eq!(mailbox.put(note(1)), Put::Instead(1));
        assert_eq!(mailbox.put(large()), Put::Instead(1));
    }

    #[test]
    fn the_end_comes_after_what_waits_and_only_once() {
        let mailbox = Arc::new(Mailbox::default());
        mailbox.put(note(1));
        mailbox.end(End::Answer("a".into()));
        mailbox.end(End::Over);
        assert_eq!(mailbox.put(note(2)), Put::Refused);
        let mut reader = mailbox.reader();
        assert_eq!(read(&mut reader), Some(Next::Message("1".into())));
        assert_eq!(read(&mut reader), Some(Next::End(End::Answer("a".into()))));
    }

    #[test]
    fn a_newer_reader_ends_the_older() {
        let mailbox = Arc::new(Mailbox::default());
        let mut old = mailbox.reader();
        assert_eq!(read(&mut old), None);
        let mut new = mailbox.reader();
        mailbox.put(note(1));
        assert_eq!(read(&mut old), Some(Next::End(End::Over)));
        assert_eq!(read(&mut new), Some(Next::Message("1".into())));
    }
}
