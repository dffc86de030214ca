//! How many sessions there are, in all and by principal.

use std::collections::HashMap;

use steadfast_session::{Limit, Limits, Principal};

#[derive(Debug, Default)]
pub(crate) struct Tally {
    sessions: u64,
    by_principal: HashMap<Principal, u64>,
}

impl Tally {
    pub(crate) fn sessions(&self) -> u64 {
        self.sessions
    }

    /// Counts one more session, or says which bound forbids it.
    pub(crate) fn admit(&mut self, principal: &Principal, limits: &Limits) -> Result<(), Limit> {
        if self.sessions >= limits.sessions {
            return Err(Limit::Sessions);
        }
        let own = self.by_principal.get(principal).copied().unwrap_or(0);
        if own >= limits.sessions_per_principal {
            return Err(Limit::SessionsPerPrincipal);
        }
        self.by_principal.insert(principal.clone(), own + 1);
        self.sessions += 1;
        Ok(())
    }

    pub(crate) fn release(&mut self, principal: &Principal) {
        self.sessions = self.sessions.saturating_sub(1);
        if let Some(own) = self.by_principal.get_mut(principal) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                self.by_principal.remove(principal);
            }
        }
    }
}
