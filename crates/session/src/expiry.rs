//! What time does to a session.

use std::time::Duration;

use steadfast_wire::planted;

use crate::changes::Changes;
use crate::command::Swept;
use crate::ids::Time;
use crate::lifecycle::CloseReason;
use crate::limits::Rules;
use crate::session::Session;

/// Answers are kept up to this part of the retention longer. Each look at a session is a write, and one look finds all that came
/// due meanwhile.
const FORGOTTEN_TOGETHER: u32 = 4;

/// For a bug that is planted.
const PLANTED_IDLE: Duration = Duration::from_secs(3);

impl Session {
    /// When the session ends if nothing more happens. Never while a call is in flight or a connection attached.
    pub fn deadline(&self, rules: &Rules) -> Option<(Time, CloseReason)> {
        if planted("early-expiry") && self.is_open() {
            return Some((self.meta.last_active.plus(PLANTED_IDLE), CloseReason::IdleExpired));
        }
        if !self.calls.is_empty() || self.attached > 0 || !self.is_open() {
            return None;
        }
        // Activity is recorded in steps, so the last one may be that much younger than its record.
        let active = self.meta.last_active.plus(rules.timing.touch);
        Some(match self.meta.detached_at {
            Some(at) => (active.max(at).plus(rules.timing.grace), CloseReason::GraceExpired),
            None => (active.plus(rules.timing.idle), CloseReason::IdleExpired),
        })
    }

    /// When time alone will next change something.
    pub fn next_check(&self, rules: &Rules) -> Option<Time> {
        if let Some((_, at)) = self.meta.closed {
            return Some(at.plus(rules.timing.linger));
        }
        let deadline = self.deadline(rules).map(|(at, _)| at);
        let retention = self.next_forgotten(rules);
        match (deadline, retention) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// A while after the first is due, so that calls that came one by one are forgotten together.
    fn next_forgotten(&self, rules: &Rules) -> Option<Time> {
        let retention = rules.timing.retention;
        self.finished.first().map(|(at, _)| at.plus(retention + retention / FORGOTTEN_TOGETHER))
    }

    pub(crate) fn sweep(&mut self, now: Time, rules: &Rules, changes: &mut Changes) -> Swept {
        if let Some((_, at)) = self.meta.closed {
            let over = at.plus(rules.timing.linger);
            return if now >= over { Swept::Remove } else { Swept::Next(Some(over)) };
        }
        self.forget_finished(now, rules, changes);
        if let Some((at, reason)) = self.deadline(rules)
            && now >= at
        {
            self.close(reason, now, rules, changes);
        }
        Swept::Next(self.next_check(rules))
    }

    fn forget_finished(&mut self, now: Time, rules: &Rules, changes: &mut Changes) {
        while let Some(&(at, no)) = self.finished.first()
            && now >= at.plus(rules.timing.retention)
        {
            self.remove_stream(no, changes);
        }
    }
}
