//! Expiry: closes idle or detached sessions, and removes finished streams after their retention.

use crate::changes::Changes;
use crate::command::Swept;
use crate::ids::{StreamNo, Time};
use crate::lifecycle_events::CloseReason;
use crate::limits::Rules;
use crate::session::Session;

/// Finished streams may be kept longer than their retention, by the retention divided by this
/// number.
///
/// Each sweep of a session is a write to the store. The delay lets one sweep remove several
/// streams.
const SWEEP_DELAY_DIVISOR: u32 = 4;

impl Session {
    /// Returns when and why the session will expire if no command follows.
    ///
    /// Returns `None` while a call is in flight or a connection is attached, and if the session is
    /// closed.
    pub fn deadline(&self, rules: &Rules) -> Option<(Time, CloseReason)> {
        if !self.calls.is_empty() || self.attached > 0 || !self.is_open() {
            return None;
        }
        // Activity is recorded only once per `touch`, so the last activity may be that much newer
        // than its record.
        let active = self.meta.last_active.plus(rules.timing.touch);
        if self.facts().is_call_job() {
            let until = match (self.streams.is_empty(), self.meta.next_call) {
                // The job is removed with its stream, which has a time of its own.
                (false, _) => active.plus(rules.timing.idle.max(rules.timing.retention)),
                // The node that has opened the job begins its call at once, or not at all.
                (true, 0) => active.plus(rules.timing.linger),
                (true, _) => Time::default(),
            };
            return Some((until, CloseReason::IdleExpired));
        }
        Some(match self.meta.detached_at {
            Some(at) => (active.max(at).plus(rules.timing.grace), CloseReason::GraceExpired),
            None => (active.plus(rules.timing.idle), CloseReason::IdleExpired),
        })
    }

    /// Returns when the next [`Sweep`](crate::command::Sweep) is due, or `None` if none is due
    /// without another command.
    pub fn next_check(&self, rules: &Rules) -> Option<Time> {
        if let Some((_, at)) = self.meta.closed {
            return Some(at.plus(rules.timing.linger));
        }
        let deadline = self.deadline(rules).map(|(at, _)| at);
        let removal = self.next_stream_removal(rules);
        match (deadline, removal) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns when to remove finished streams: some time after the retention of the oldest one, so
    /// that one sweep removes several streams. A job has only one stream, so it does not wait.
    fn next_stream_removal(&self, rules: &Rules) -> Option<Time> {
        let (at, no) = *self.finished.first()?;
        let until = self.kept_until(at, no, rules);
        Some(if self.facts().is_call_job() {
            until
        } else {
            until.plus(rules.timing.retention / SWEEP_DELAY_DIVISOR)
        })
    }

    /// Returns how long a stream that finished at `at` is kept. The stream of a job is kept for
    /// `linger` after it was fully delivered, for a client that lost its last bytes: no later
    /// request of the client can use the job.
    fn kept_until(&self, at: Time, no: StreamNo, rules: &Rules) -> Time {
        if self.facts().is_call_job() && self.fully_delivered.contains(&(at, no)) {
            return at.max(self.meta.last_active.plus(rules.timing.touch)).plus(rules.timing.linger);
        }
        at.plus(rules.timing.retention)
    }

    pub(crate) fn sweep(&mut self, now: Time, rules: &Rules, changes: &mut Changes) -> Swept {
        if let Some((_, at)) = self.meta.closed {
            let over = at.plus(rules.timing.linger);
            return if now >= over { Swept::Remove } else { Swept::Next(Some(over)) };
        }
        self.remove_expired_streams(now, rules, changes);
        if let Some((at, reason)) = self.deadline(rules)
            && now >= at
        {
            self.close(reason, now, rules, changes);
        }
        Swept::Next(self.next_check(rules))
    }

    fn remove_expired_streams(&mut self, now: Time, rules: &Rules, changes: &mut Changes) {
        while let Some(&(at, no)) = self.finished.first()
            && now >= self.kept_until(at, no, rules)
        {
            self.remove_stream(no, changes);
        }
    }
}
