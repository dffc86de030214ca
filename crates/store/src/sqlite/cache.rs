//! Sessions that the writer has in memory, so that a hot one is not read again for each command.

use std::collections::HashMap;

use steadfast_session::{NodeId, SessionId};

use super::slot::Slot;

/// Sessions in memory.
const SESSIONS: usize = 4096;

/// What they may weigh together.
const BYTES: u64 = 64 << 20;

/// Two generations: what is used moves to the young one, and when that has half of the room, the old one is
/// forgotten and the young one grows old. That is nearly "least recently used" without a list to maintain.
#[derive(Debug, Default)]
pub(super) struct Cache {
    young: HashMap<SessionId, Box<Slot>>,
    old: HashMap<SessionId, Box<Slot>>,
    young_weight: u64,
}

impl Cache {
    pub(super) fn get(&mut self, id: &SessionId) -> Option<&mut Slot> {
        if !self.young.contains_key(id) {
            let slot = self.old.remove(id)?;
            self.young_weight += slot.weight;
            self.young.insert(*id, slot);
        }
        self.young.get_mut(id).map(|slot| &mut **slot)
    }

    pub(super) fn insert(&mut self, id: SessionId, slot: Slot) -> &mut Slot {
        self.young_weight += slot.weight;
        self.young.entry(id).insert_entry(Box::new(slot)).into_mut()
    }

    pub(super) fn remove(&mut self, id: &SessionId) {
        if let Some(slot) = self.young.remove(id) {
            self.young_weight = self.young_weight.saturating_sub(slot.weight);
        }
        self.old.remove(id);
    }

    /// Weighs a session again after it was written.
    pub(super) fn weigh(&mut self, id: &SessionId) {
        if let Some(slot) = self.young.get_mut(id) {
            let weight = slot.weigh();
            self.young_weight = (self.young_weight + weight).saturating_sub(slot.weight);
            slot.weight = weight;
        }
    }

    /// Makes room. To be called only when no session is dirty.
    pub(super) fn trim(&mut self) {
        if self.young.len() > SESSIONS / 2 || self.young_weight > BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_weight = 0;
        }
    }

    /// A node's presence is not in the file any more.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        for slot in self.young.values_mut().chain(self.old.values_mut()) {
            slot.nodes.retain(|present| *present != node);
        }
    }

    /// Forgets everything, because the file may say something else.
    pub(super) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
        self.young_weight = 0;
    }
}
