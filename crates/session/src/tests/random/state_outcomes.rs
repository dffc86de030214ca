//! Checks the outcomes of writes of session state against the model.

use super::model::Model;
use crate::Limit;
use crate::command::{PutState, StatePut};

impl Model {
    pub(super) fn check_put(&mut self, c: &PutState, o: &StatePut) {
        let limits = &self.rules.limits;
        let known = self.state.get(&c.key);
        if known.map(|(version, _)| *version) != c.expected {
            assert!(matches!(o, StatePut::Conflict { current } if
                current.as_ref().map(|value| (value.version, value.bytes.clone())).as_ref() == known));
            return;
        }
        let mut after = self.state.clone();
        match &c.value {
            Some(bytes) => after.insert(c.key.clone(), (u64::MAX, bytes.clone())),
            None => after.remove(&c.key),
        };
        let size = after.iter().map(|(key, (_, bytes))| key.len() + bytes.len()).sum::<usize>() as u64;
        if after.len() > limits.state_entries || size > limits.state_bytes {
            assert_eq!(*o, StatePut::OverLimit(Limit::State));
            return;
        }
        let StatePut::Put { version } = *o else { panic!("refused: {o:?}") };
        assert_eq!(version.is_some(), c.value.is_some());
        if let Some(version) = version {
            assert!(version > self.last_version);
            self.last_version = version;
            after.get_mut(&c.key).unwrap().0 = version;
        }
        self.state = after;
    }
}
