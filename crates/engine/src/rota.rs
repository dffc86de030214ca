//! Whose turn it is, when there are more sessions than one sweep looks at.

use std::sync::{Mutex, PoisonError};

use steadfast_session::SessionId;

/// Sessions that one sweep looks at. A part of the store that does not answer is waited for once, not for each of its sessions.
const BATCH: usize = 64;

/// Goes round by id, so that sessions that are looked at in vain do not keep others from their turn.
#[derive(Debug, Default)]
pub(crate) struct Rota {
    /// Who came last.
    last: Mutex<Option<SessionId>>,
}

impl Rota {
    /// Those whose turn it is.
    pub(crate) fn next<T>(&self, mut all: Vec<T>, id: impl Fn(&T) -> SessionId) -> Vec<T> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        all.sort_unstable_by_key(|one| (Some(id(one)) <= *last, id(one)));
        all.truncate(BATCH);
        *last = all.last().map(id).or(*last);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn() {
        let id = |number: u8| SessionId::from_random([number; SessionId::BYTES]);
        let all: Vec<SessionId> = (0..100).map(id).collect();
        let rota = Rota::default();
        let turn = || rota.next(all.clone(), |id| *id);
        assert_eq!(turn(), all[..64]);
        assert_eq!(turn(), [&all[64..], &all[..28]].concat());
        assert_eq!(rota.next(vec![id(5), id(200)], |id| *id), [id(200), id(5)]);
        assert_eq!(rota.next(Vec::new(), |id: &SessionId| *id), []);
    }
}
