//! Sessions that a node has in memory, so that a hot one is not loaded for each command.

use std::collections::HashMap;

use steadfast_session::SessionId;

use super::slot::Slot;

/// Sessions in memory.
const SESSIONS: usize = 16_384;

/// What they may weigh together.
const BYTES: u64 = 64 << 20;

/// Two generations: what is used moves to the young one, and when that has half of the room, the old one is forgotten
/// and the young one grows old.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    young: HashMap<SessionId, Box<Slot>>,
    old: HashMap<SessionId, Box<Slot>>,
    young_weight: u64,
}

impl Cache {
    /// Takes a session out. Whoever has it puts it back, or leaves it out if it may be wrong.
    pub(crate) fn take(&mut self, id: &SessionId) -> Option<Box<Slot>> {
        if let Some(slot) = self.young.remove(id) {
            self.young_weight = self.young_weight.saturating_sub(slot.weigh());
            return Some(slot);
        }
        self.old.remove(id)
    }

    pub(crate) fn put(&mut self, id: SessionId, slot: Box<Slot>) {
        self.young_weight += slot.weigh();
        self.young.insert(id, slot);
        if self.young.len() > SESSIONS / 2 || self.young_weight > BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_weight = 0;
        }
    }
}
