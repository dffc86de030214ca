//! The source of random ids. All code takes random bytes from it.

use steadfast_session::{NodeId, SessionToken};

/// Generates unguessable ids.
pub trait Entropy: Send + Sync + 'static {
    fn fill(&self, bytes: &mut [u8]);

    fn session_token(&self) -> SessionToken {
        let mut bytes = [0; SessionToken::BYTES];
        self.fill(&mut bytes);
        SessionToken::from_random(bytes)
    }

    fn node_id(&self) -> NodeId {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        // Stores keep the id as a signed 64-bit integer.
        NodeId(u64::from_le_bytes(bytes) >> 1)
    }
}

/// The random number generator of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    /// # Panics
    /// If the operating system has no randomness: guessable session ids would be worse than a
    /// crash.
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system provides randomness");
    }
}
