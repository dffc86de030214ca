//! The session state: a small key-value table with versions and compare-and-set.

use crate::changes::Changes;
use crate::command::{GetState, PutState, StateGot, StatePut};
use crate::limits::{Limit, Rules};
use crate::rows::StateEntry;
use crate::session::Session;

impl Session {
    pub(crate) fn get_state(&self, command: &GetState) -> StateGot {
        let value = self.state.get(&command.key).map(|value| StateEntry::clone(value));
        if self.is_open() { StateGot::SessionOpen(value) } else { StateGot::SessionClosed(value) }
    }

    /// Deletes an entry, if it exists.
    pub(crate) fn delete_state(&mut self, key: &str, changes: &mut Changes) {
        let Some(value) = self.state.remove(key) else { return };
        self.state_bytes -= (key.len() + value.bytes.len()) as u64;
        changes.state.push(key.into());
    }

    pub(crate) fn put_state(&mut self, command: PutState, rules: &Rules, changes: &mut Changes) -> StatePut {
        if !self.is_open() {
            return StatePut::NoSession;
        }
        let current = self.state.get(&command.key);
        if current.map(|value| value.version) != command.expected {
            return StatePut::Conflict { current: current.map(|value| StateEntry::clone(value)) };
        }
        let cost = |bytes: usize| (command.key.len() + bytes) as u64;
        let old = current.map_or(0, |value| cost(value.bytes.len()));
        let new = command.value.as_ref().map_or(0, |bytes| cost(bytes.len()));
        let limits = &rules.limits;
        let too_many_entries =
            current.is_none() && command.value.is_some() && self.state.len() >= limits.state_entries;
        if too_many_entries || (new > old && self.state_bytes - old + new > limits.state_bytes) {
            return StatePut::OverLimit(Limit::State);
        }
        self.state_bytes = self.state_bytes - old + new;
        changes.state.push(command.key.clone());
        let Some(bytes) = command.value else {
            self.state.remove(&command.key);
            return StatePut::Put { version: None };
        };
        self.meta.next_version += 1;
        changes.meta = true;
        let version = self.meta.next_version;
        self.state.insert(command.key, Box::new(StateEntry { version, bytes }));
        StatePut::Put { version: Some(version) }
    }
}
