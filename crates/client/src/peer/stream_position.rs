//! The position in a resumable stream, and when to reconnect. No IO.

use std::time::Duration;

use http::HeaderValue;
use steadfast_wire::sse::Event;

use crate::config::Backoff;

/// The shortest wait, so that a server that sends `retry: 0` is not polled in a tight loop.
const MIN_WAIT: Duration = Duration::from_millis(10);

/// Consecutive connections that may end quickly and without any event. A server that wants to be
/// polled sends an event on each connection. A server that no longer knows the stream may only end
/// it, and would do so on every attempt.
const MAX_EMPTY_CONNECTIONS: u32 = 3;

/// A connection that lasted this long counts as held, even if the server sent only comments.
const MIN_HELD: Duration = Duration::from_secs(1);

/// The position in a stream that may span several connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamPosition {
    last_id: Option<String>,
    /// The number of data bytes in the event with the last id.
    last_bytes: usize,
    /// The server's `retry:`.
    retry: Option<Duration>,
    /// Consecutive connections without a message.
    silent_connections: u32,
    /// Consecutive failed connection attempts.
    failures: u32,
    /// Whether the current connection has delivered an event, with or without data.
    has_received: bool,
    /// Consecutive connections that ended quickly and without any event.
    empty_connections: u32,
}

impl StreamPosition {
    /// Records an event. Returns true if the event is new. Some servers repeat the event that the
    /// client names in `Last-Event-ID`. The id alone does not identify a repetition: rmcp's
    /// standalone stream gives its first message the id of its priming event.
    #[must_use]
    pub(crate) fn record(&mut self, event: &Event) -> bool {
        let is_known = event.id.is_some() && event.id == self.last_id && event.data.len() == self.last_bytes;
        let is_new = self.has_received || !is_known;
        self.has_received = true;
        // An event without data only shows that the server is alive.
        if is_new && !event.data.is_empty() {
            self.silent_connections = 0;
        }
        if let Some(id) = &event.id {
            // An empty id clears the last id (SSE specification).
            self.last_id = Some(id.clone()).filter(|id| !id.is_empty());
            self.last_bytes = event.data.len();
        }
        if let Some(ms) = event.retry_ms {
            self.retry = Some(Duration::from_millis(ms));
        }
        is_new
    }

    /// Records that a connection was established. Later events show whether the connection is
    /// useful.
    pub(crate) fn connected(&mut self) {
        self.failures = 0;
        self.silent_connections = self.silent_connections.saturating_add(1);
        self.has_received = false;
    }

    /// Records that a connection has ended after `time`. Returns false if it ended quickly and
    /// without any event.
    pub(crate) fn ended(&mut self, time: Duration) -> bool {
        let was_held = self.has_received || time >= MIN_HELD;
        self.empty_connections = if was_held { 0 } else { self.empty_connections.saturating_add(1) };
        was_held
    }

    /// Returns true if the server closes every connection quickly and without any event, so that it
    /// has nothing more to send on this stream.
    pub(crate) fn is_closed_repeatedly(&self) -> bool {
        self.empty_connections >= MAX_EMPTY_CONNECTIONS
    }

    /// Resets the count of silent connections if this connection outlasted the backoff that would
    /// follow. Such a connection was useful even if silent: some load balancers cut idle
    /// connections.
    pub(crate) fn credit_duration(&mut self, time: Duration, backoff: &Backoff) {
        if time >= backoff.wait(self.silent_connections) {
            self.silent_connections = self.silent_connections.min(1);
        }
    }

    /// Records a failed connection attempt.
    pub(crate) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Discards earlier failures.
    pub(crate) fn reset_failures(&mut self) {
        self.failures = 0;
    }

    /// Discards the id of the last event, so that the next connection starts a new stream.
    pub(crate) fn forget_last_event(&mut self) {
        self.last_id = None;
    }

    /// Returns true if the server sent `retry:` and an id: it intends to end its connections and
    /// expects the client to poll.
    pub(crate) fn expects_polling(&self) -> bool {
        self.retry.is_some() && self.last_id.is_some()
    }

    /// The value for `Last-Event-ID`. `None` if the server sent no id, or an id that is not a valid
    /// header value.
    pub(crate) fn last_event_id(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(self.last_id.as_ref()?.as_bytes()).ok()
    }

    pub(crate) fn should_give_up(&self, backoff: &Backoff) -> bool {
        self.failures >= backoff.attempts
    }

    /// How long to wait before the next attempt. The server's `retry:` applies, up to its own
    /// bound.
    pub(crate) fn wait(&self, backoff: &Backoff) -> Duration {
        let delay = backoff.wait(self.failures.max(self.silent_connections));
        match self.retry {
            Some(retry) if self.failures == 0 => retry.min(backoff.longest_retry).max(MIN_WAIT),
            Some(retry) => retry.min(backoff.longest_retry).max(delay),
            None => delay,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use steadfast_wire::sse::Kind;

    use super::*;

    fn event(id: Option<&str>, data: &'static str) -> Event {
        Event {
            kind: Kind::Message,
            data: Bytes::from_static(data.as_bytes()),
            id: id.map(str::to_owned),
            retry_ms: None,
        }
    }

    enum Step {
        /// An event without data: id and retry time.
        Event(Option<&'static str>, Option<u64>),
        Message,
        Connected,
        /// A connection that has ended after this many milliseconds.
        Credit(u64),
        Failed,
    }

    /// Checks `Last-Event-ID` and the wait in milliseconds after these steps.
    fn check(steps: &[Step], expect: (Option<&str>, u64)) {
        let ms = Duration::from_millis;
        let backoff = Backoff {
            first: ms(100),
            longest: ms(1000),
            longest_retry: ms(5000),
            attempts: 3,
            ..Backoff::default()
        };
        let mut position = StreamPosition::default();
        for step in steps {
            match step {
                Step::Event(id, retry_ms) => {
                    let _ = position.record(&Event { retry_ms: *retry_ms, ..event(*id, "") });
                }
                Step::Message => assert!(position.record(&event(None, "{}"))),
                Step::Connected => position.connected(),
                Step::Credit(time) => position.credit_duration(ms(*time), &backoff),
                Step::Failed => position.failed(),
            }
        }
        let id = position.last_event_id();
        let id = id.as_ref().and_then(|id| id.to_str().ok());
        assert_eq!((id, position.wait(&backoff).as_millis() as u64), expect);
    }

    #[test]
    fn last_event_id_and_wait() {
        use Step::{Connected, Credit, Event, Failed, Message};
        check(&[Connected], (None, 100));
        check(&[Connected, Event(None, None)], (None, 100));
        check(&[Connected, Event(Some("a"), None), Event(None, None)], (Some("a"), 100));
        check(&[Connected, Event(Some("a"), None), Event(Some(""), None)], (None, 100));
        check(&[Connected, Event(Some("a\u{1}"), None)], (None, 100));
        // The server's `retry:` applies, within bounds.
        check(&[Connected, Event(Some("a"), Some(500))], (Some("a"), 500));
        check(&[Connected, Event(Some("a"), Some(0))], (Some("a"), 10));
        check(&[Connected, Event(Some("a"), Some(99_999))], (Some("a"), 5000));
        check(&[Connected, Event(Some("a"), Some(150)), Failed, Failed], (Some("a"), 200));
        // The wait grows while connections deliver nothing.
        check(&[Connected, Connected, Connected], (None, 400));
        check(&[Connected, Connected, Connected, Event(None, None)], (None, 400));
        check(&[Connected, Connected, Connected, Message], (None, 100));
        check(&[Connected, Connected, Connected, Credit(399)], (None, 400));
        check(&[Connected, Connected, Connected, Credit(400)], (None, 100));
        check(&[Connected, Credit(400), Connected], (None, 200));
    }

    #[test]
    fn a_repeated_event_is_recognised() {
        let mut position = StreamPosition::default();
        position.connected();
        assert!(position.record(&event(Some("0"), "")));
        position.connected();
        assert!(position.record(&event(Some("0"), "first")), "the same id, and it had no data");
        position.connected();
        assert!(!position.record(&event(Some("0"), "first")));
        assert!(position.record(&event(Some("0"), "first")), "only the first event can be the one before");
        assert!(position.record(&event(None, "other")));
        position.connected();
        assert!(position.record(&event(None, "other")), "an event without an id cannot be recognised");
        position.connected();
        assert!(position.record(&event(Some("1"), "first")));
        position.forget_last_event();
        position.connected();
        assert!(position.record(&event(Some("1"), "first")), "another stream");
        // A repeated event counts like silence.
        position.connected();
        position.connected();
        assert!(!position.record(&event(Some("1"), "first")));
        assert_eq!(position.silent_connections, 2);
    }

    #[test]
    fn consecutive_empty_connections_end_it() {
        let mut position = StreamPosition::default();
        let mut end = |has_event: bool, time: Duration| {
            position.connected();
            if has_event {
                let _ = position.record(&event(Some("a"), ""));
            }
            (position.ended(time), position.is_closed_repeatedly())
        };
        let brief = MIN_HELD / 2;
        for _ in 0..2 * MAX_EMPTY_CONNECTIONS {
            assert_eq!(end(true, brief), (true, false), "a poll");
            assert_eq!(end(false, MIN_HELD), (true, false), "comments alone, for a while");
        }
        // An event or a held connection resets the count.
        for (has_event, time) in [(true, brief), (false, MIN_HELD)] {
            for _ in 1..MAX_EMPTY_CONNECTIONS {
                assert_eq!(end(false, brief), (false, false));
            }
            assert_eq!(end(has_event, time), (true, false));
        }
        for no in 1..=MAX_EMPTY_CONNECTIONS {
            assert_eq!(end(false, brief), (false, no == MAX_EMPTY_CONNECTIONS));
        }
    }

    #[test]
    fn consecutive_failures_end_it() {
        let backoff = Backoff { attempts: 2, ..Backoff::default() };
        let mut position = StreamPosition::default();
        position.failed();
        assert!(!position.should_give_up(&backoff));
        position.connected();
        position.failed();
        assert!(!position.should_give_up(&backoff));
        position.failed();
        assert!(position.should_give_up(&backoff));
    }
}
