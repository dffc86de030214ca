//! Randomness comes from here and nowhere else.

use steadfast_session::{NodeId, SessionToken};

/// Draws ids that nobody can guess.
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
        // Stores keep it as a signed integer.
        NodeId(u64::from_le_bytes(bytes) >> 1)
    }
}

/// The random number generator of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    /// # Panics
    /// If the operating system has no randomness to give: going on with guessable session ids would be worse.
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system provides randomness");
    }
}
