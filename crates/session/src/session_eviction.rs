//! Eviction: closes a session that is not in use, to make room for others.

use crate::changes::Changes;
use crate::command::{Evict, Evicted};
use crate::ids::{StreamNo, Time};
use crate::lifecycle_events::CloseReason;
use crate::limits::Rules;
use crate::rows::Meta;
use crate::session::Session;

/// When and how much a session was used. The order is the order of eviction: first sessions that
/// never made a call, then those that were not used for the longest time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastUse {
    /// The number of calls that the session has begun.
    pub calls: u64,
    /// The last recorded activity, or the loss of the last connection.
    pub at: Time,
}

impl LastUse {
    /// Returns the key by which candidates for eviction are sorted.
    pub fn eviction_order(self) -> (bool, Time) {
        (self.calls > 0, self.at)
    }
}

impl Meta {
    /// Returns the last use of the session.
    pub fn last_use(&self) -> LastUse {
        let at = self.detached_at.map_or(self.last_active, |at| at.max(self.last_active));
        LastUse { calls: self.next_call, at }
    }
}

impl Session {
    pub(crate) fn evict(
        &mut self,
        command: &Evict,
        now: Time,
        rules: &Rules,
        changes: &mut Changes,
    ) -> Evicted {
        if !self.is_open() {
            return Evicted::NoSession;
        }
        if self.is_in_use(now, rules) || self.meta.last_use() != command.seen {
            return Evicted::InUse;
        }
        self.close(CloseReason::Evicted, now, rules, changes);
        // No connection reads these events. The session state stays until the session is removed:
        // the server behind the gateway is told that its session has ended.
        let streams: Vec<StreamNo> = self.streams.keys().copied().collect();
        for stream in streams {
            self.remove_stream(stream, changes);
        }
        Evicted::Evicted
    }

    /// Returns true if the session has a call, a server request, a connection, or an answer within
    /// its retention that its client has perhaps not received.
    fn is_in_use(&self, now: Time, rules: &Rules) -> bool {
        let is_kept = |(at, _): &&(Time, StreamNo)| now < at.plus(rules.timing.retention);
        !self.calls.is_empty()
            || !self.server_requests.is_empty()
            || self.attached > 0
            || self.finished.difference(&self.fully_delivered).last().as_ref().is_some_and(is_kept)
    }
}
