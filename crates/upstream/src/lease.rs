//! Who hears what a server sends outside of calls: one process at a time, because servers have one stream for it.
//!
//! The record of the session names a node. While that node is alive nobody else opens the stream; when it is gone, whoever
//! serves the session next takes its place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use steadfast_engine::{NodeId, SessionHandle};
use tokio::time::Instant;

use crate::link::{Lane, Link, record_of};
use crate::record::Record;

/// How often a process that serves a session looks whether the one that listens is still there.
const LOOK: Duration = Duration::from_secs(1);

/// What this process knows of the lease of a session.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    is_ours: AtomicBool,
    looked: Mutex<Option<Instant>>,
}

impl Lease {
    pub(crate) fn is_ours(&self) -> bool {
        self.is_ours.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) {
        self.is_ours.store(true, Ordering::Release);
    }

    /// Whether it is time to look again; if it is, it is not for a while.
    fn is_due(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        if is_due {
            *looked = Some(Instant::now());
        }
        is_due
    }
}

impl Link {
    /// Takes the lease, unless a node that is alive has it.
    pub(crate) async fn claim(&self, session: &SessionHandle, record: &Record) {
        if self.lease.is_ours() || !self.shared.config.standalone {
            return;
        }
        let (me, holder) = (session.engine().node(), record.listener);
        if let Some(other) = holder.map(NodeId).filter(|node| *node != me) {
            // If the store does not know, nobody takes anything.
            match session.engine().store().is_alive(other).await {
                Ok(false) => {}
                Ok(true) | Err(_) => return,
            }
        }
        let mut is_ours = false;
        let written = Record::change(session, |record| {
            // Others claim it as well; the first to write has it.
            is_ours = record.listener == holder;
            record.listener = Some(me.0);
            is_ours
        });
        if written.await.is_ok() && is_ours {
            self.lease.take();
        }
    }

    /// Looks now and then whether somebody still listens, while calls come.
    pub(crate) fn mind_the_lease(self: &Arc<Self>) {
        if self.lease.is_ours() || !self.shared.config.standalone || !self.lease.is_due() {
            return;
        }
        let link = Arc::clone(self);
        tokio::spawn(async move {
            let Some(session) = link.session() else { return };
            link.claim(&session, &record_of(&session).await).await;
            if link.lease.is_ours() {
                link.lanes.iter().filter_map(Lane::seat).for_each(|seat| seat.client.hold_standalone());
            }
        });
    }
}
