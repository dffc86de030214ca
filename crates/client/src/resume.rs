//! Where a stream stands, and when to ask for the rest of it. Pure.

use std::time::Duration;

use http::HeaderValue;
use steadfast_wire::sse::Event;

use crate::config::Backoff;

/// The shortest wait, so that a server that says zero is not asked in a tight loop.
const SHORTEST: Duration = Duration::from_millis(10);

/// Connections in a row that may be hung up on without a word. A server that wants to be polled says so on each of them; one
/// that does not know the stream any more may just end it, and would do so for ever.
const MAX_HANG_UPS: u32 = 3;

/// A connection that lasted for so long was held by somebody, even if nothing came but comments.
const HELD: Duration = Duration::from_secs(1);

/// The position in a stream that may span several connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    last_id: Option<String>,
    /// How much data came with the last id.
    last_bytes: usize,
    retry: Option<Duration>,
    /// Connections in a row that gave no message.
    fruitless: u32,
    /// Attempts in a row that gave no connection.
    failures: u32,
    /// Whether this connection has brought an event, be it without data.
    has_spoken: bool,
    /// Connections in a row that ended at once and without any event.
    hang_ups: u32,
}

impl Position {
    /// Takes in an event. Gives whether it is new: some servers begin with the very event after which they are to go on. (The id
    /// alone does not tell: rmcp's standalone stream gives its first message the id that its priming event had.)
    #[must_use]
    pub(crate) fn note(&mut self, event: &Event) -> bool {
        let is_known = event.id.is_some() && event.id == self.last_id && event.data.len() == self.last_bytes;
        let is_new = self.has_spoken || !is_known;
        self.has_spoken = true;
        // An event without data only says that the server is there.
        if is_new && !event.data.is_empty() {
            self.fruitless = 0;
        }
        if let Some(id) = &event.id {
            // An empty id takes back the one before.
            self.last_id = Some(id.clone()).filter(|id| !id.is_empty());
            self.last_bytes = event.data.len();
        }
        if let Some(ms) = event.retry_ms {
            self.retry = Some(Duration::from_millis(ms));
        }
        is_new
    }

    /// A connection was made; whether it is of use shows later.
    pub(crate) fn connected(&mut self) {
        self.failures = 0;
        self.fruitless = self.fruitless.saturating_add(1);
        self.has_spoken = false;
    }

    /// A connection has ended after this time. Gives whether that was more than being hung up on.
    pub(crate) fn ended(&mut self, time: Duration) -> bool {
        let was_there = self.has_spoken || time >= HELD;
        self.hang_ups = if was_there { 0 } else { self.hang_ups.saturating_add(1) };
        was_there
    }

    /// Whether the server has nothing more to say on this stream.
    pub(crate) fn is_hung_up_on(&self) -> bool {
        self.hang_ups >= MAX_HANG_UPS
    }

    /// A connection has ended. One that lasted longer than the wait that would follow was of use even if it was silent: there
    /// are balancers that cut what is silent for a while.
    pub(crate) fn lasted(&mut self, time: Duration, backoff: &Backoff) {
        if time >= backoff.wait(self.fruitless) {
            self.fruitless = self.fruitless.min(1);
        }
    }

    pub(crate) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Whatever failed before does not count any more.
    pub(crate) fn give_another_chance(&mut self) {
        self.failures = 0;
    }

    /// Begins anew, from wherever the server does.
    pub(crate) fn forget(&mut self) {
        self.last_id = None;
    }

    /// Whether the server has said when to come back: it means to end its connections and be asked again.
    pub(crate) fn wants_to_be_polled(&self) -> bool {
        self.retry.is_some() && self.last_id.is_some()
    }

    /// What to send to get the rest. `None` if the server gave no id, or one that no header holds.
    pub(crate) fn last_event_id(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(self.last_id.as_ref()?.as_bytes()).ok()
    }

    pub(crate) fn is_given_up(&self, backoff: &Backoff) -> bool {
        self.failures >= backoff.attempts
    }

    /// How long to wait before the next attempt. The server's word counts, up to a bound of its own.
    pub(crate) fn wait(&self, backoff: &Backoff) -> Duration {
        let ours = backoff.wait(self.failures.max(self.fruitless));
        match self.retry {
            Some(retry) if self.failures == 0 => retry.min(backoff.longest_retry).max(SHORTEST),
            Some(retry) => retry.min(backoff.longest_retry).max(ours),
            None => ours,
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
        /// One without data.
        Event(Option<&'static str>, Option<u64>),
        Message,
        Connected,
        /// The connection has ended after so many milliseconds.
        Lasted(u64),
        Failed,
    }

    /// What to send, and how many milliseconds to wait before.
    fn check(steps: &[Step], expect: (Option<&str>, u64)) {
        let ms = Duration::from_millis;
        let backoff = Backoff {
            first: ms(100),
            longest: ms(1000),
            longest_retry: ms(5000),
            attempts: 3,
            ..Backoff::default()
        };
        let mut position = Position::default();
        for step in steps {
            match step {
                Step::Event(id, retry_ms) => {
                    let _ = position.note(&Event { retry_ms: *retry_ms, ..event(*id, "") });
                }
                Step::Message => assert!(position.note(&event(None, "{}"))),
                Step::Connected => position.connected(),
                Step::Lasted(time) => position.lasted(ms(*time), &backoff),
                Step::Failed => position.failed(),
            }
        }
        let id = position.last_event_id();
        let id = id.as_ref().and_then(|id| id.to_str().ok());
        assert_eq!((id, position.wait(&backoff).as_millis() as u64), expect);
    }

    #[test]
    fn positions_say_what_to_send_and_when() {
        use Step::{Connected, Event, Failed, Lasted, Message};
        check(&[Connected], (None, 100));
        check(&[Connected, Event(None, None)], (None, 100));
        check(&[Connected, Event(Some("a"), None), Event(None, None)], (Some("a"), 100));
        check(&[Connected, Event(Some("a"), None), Event(Some(""), None)], (None, 100));
        check(&[Connected, Event(Some("a\u{1}"), None)], (None, 100));
        // The server's word counts, within bounds.
        check(&[Connected, Event(Some("a"), Some(500))], (Some("a"), 500));
        check(&[Connected, Event(Some("a"), Some(0))], (Some("a"), 10));
        check(&[Connected, Event(Some("a"), Some(99_999))], (Some("a"), 5000));
        check(&[Connected, Event(Some("a"), Some(150)), Failed, Failed], (Some("a"), 200));
        // A stream that ends again and again without a word is asked for less and less often.
        check(&[Connected, Connected, Connected], (None, 400));
        check(&[Connected, Connected, Connected, Event(None, None)], (None, 400));
        check(&[Connected, Connected, Connected, Message], (None, 100));
        check(&[Connected, Connected, Connected, Lasted(399)], (None, 400));
        check(&[Connected, Connected, Connected, Lasted(400)], (None, 100));
        check(&[Connected, Lasted(400), Connected], (None, 200));
    }

    #[test]
    fn what_was_there_before_the_break_is_known() {
        let mut position = Position::default();
        position.connected();
        assert!(position.note(&event(Some("0"), "")));
        position.connected();
        assert!(position.note(&event(Some("0"), "first")), "the same id, and it had no data");
        position.connected();
        assert!(!position.note(&event(Some("0"), "first")));
        assert!(position.note(&event(Some("0"), "first")), "only the first event can be the one before");
        assert!(position.note(&event(None, "other")));
        position.connected();
        assert!(position.note(&event(None, "other")), "without an id nobody can tell");
        position.connected();
        assert!(position.note(&event(Some("1"), "first")));
        position.forget();
        position.connected();
        assert!(position.note(&event(Some("1"), "first")), "another stream");
        // It is no more of use than silence.
        position.connected();
        position.connected();
        assert!(!position.note(&event(Some("1"), "first")));
        assert_eq!(position.fruitless, 2);
    }

    #[test]
    fn hang_ups_in_a_row_end_it() {
        let mut position = Position::default();
        let mut end = |speaks: bool, time: Duration| {
            position.connected();
            if speaks {
                let _ = position.note(&event(Some("a"), ""));
            }
            (position.ended(time), position.is_hung_up_on())
        };
        let brief = HELD / 2;
        for _ in 0..2 * MAX_HANG_UPS {
            assert_eq!(end(true, brief), (true, false), "a poll");
            assert_eq!(end(false, HELD), (true, false), "comments alone, for a while");
        }
        // Either of them makes up for what was before.
        for (speaks, time) in [(true, brief), (false, HELD)] {
            for _ in 1..MAX_HANG_UPS {
                assert_eq!(end(false, brief), (false, false));
            }
            assert_eq!(end(speaks, time), (true, false));
        }
        for no in 1..=MAX_HANG_UPS {
            assert_eq!(end(false, brief), (false, no == MAX_HANG_UPS));
        }
    }

    #[test]
    fn failures_in_a_row_end_it() {
        let backoff = Backoff { attempts: 2, ..Backoff::default() };
        let mut position = Position::default();
        position.failed();
        assert!(!position.is_given_up(&backoff));
        position.connected();
        position.failed();
        assert!(!position.is_given_up(&backoff));
        position.failed();
        assert!(position.is_given_up(&backoff));
    }
}
