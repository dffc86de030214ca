//! Bookkeeping around begin and attach commands: what this node registers before and after them.

use std::sync::Arc;

use steadfast_session::{CallNo, ConnNo, StreamNo};

use super::work::MAX_DELIVERED;
use crate::delivery::Tail;
use crate::sessions::{LiveSession, RunningCall};

impl LiveSession {
    /// Call this before a begin command goes to the store. Returns the streams that the command
    /// should report as delivered.
    pub(crate) fn begin_started(&self) -> Vec<StreamNo> {
        let mut work = self.work();
        work.begins_in_flight += 1;
        work.operations_started += 1;
        std::mem::take(&mut work.delivered_streams)
    }

    /// Call this after a begin command that failed or whose outcome is unknown. `delivered` are the
    /// streams that the store may not have recorded; reporting a stream twice is harmless.
    pub(crate) fn begin_failed(&self, mut delivered: Vec<StreamNo>) {
        let mut work = self.work();
        work.end_begin();
        delivered.append(&mut work.delivered_streams);
        delivered.truncate(MAX_DELIVERED);
        work.delivered_streams = delivered;
    }

    /// Call this after a begin command that took effect.
    pub(crate) fn begin_succeeded(
        &self,
        stream: StreamNo,
        connection: ConnNo,
        tail: &Arc<Tail>,
        calls: &[(CallNo, RunningCall)],
    ) {
        let mut work = self.work();
        for (no, running) in calls {
            if work.early.stopped_calls.remove(no) {
                running.cancel.cancel();
            } else {
                work.calls.insert(*no, running.clone());
            }
        }
        if work.early.streams.remove(&stream) || work.early.overflowed {
            tail.mark_incomplete();
        }
        work.tails.insert(stream, (connection, Arc::clone(tail)));
        work.end_begin();
    }

    /// Call this before an attach command goes to the store.
    pub(crate) fn attach_started(&self) {
        let mut work = self.work();
        work.attaches_in_flight += 1;
        work.operations_started += 1;
    }

    /// Call this after an attach command that failed or whose outcome is unknown.
    pub(crate) fn attach_failed(&self) {
        self.work().attaches_in_flight -= 1;
    }

    /// Call this after an attach command that took effect.
    pub(crate) fn attach_succeeded(&self, stream: StreamNo, connection: ConnNo, tail: &Arc<Tail>) {
        let mut work = self.work();
        work.attaches_in_flight -= 1;
        // Results of concurrent attach commands may arrive in another order than the store applied
        // them. The connection with the highest number is the newest.
        match work.tails.get(&stream) {
            Some((newer, _)) if *newer > connection => tail.supersede(*newer),
            Some((_, older)) => {
                older.supersede(connection);
                work.tails.insert(stream, (connection, Arc::clone(tail)));
            }
            None => {
                work.tails.insert(stream, (connection, Arc::clone(tail)));
            }
        }
    }
}
