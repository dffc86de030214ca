//! Pseudo-random numbers that a seed determines.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Starts a sequence. Sequences of one seed with different purposes are independent.
    pub(crate) fn of(seed: u64, purpose: &str) -> Self {
        let mix = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let mut rng = Self(purpose.bytes().fold(seed, mix));
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number from `low` up to, but not including, `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low).max(1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or_default()
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_repeat_and_differ() {
        let take = |seed, purpose| {
            let mut rng = Rng::of(seed, purpose);
            [rng.next(), rng.next()]
        };
        assert_eq!(take(1, "a"), take(1, "a"));
        assert_ne!(take(1, "a"), take(2, "a"));
        assert_ne!(take(1, "a"), take(1, "b"));
        let mut rng = Rng::of(3, "");
        assert!((0..1000).all(|_| (5..8).contains(&rng.between(5, 8))));
    }
}
