//! Delays between attempts that double up to a maximum.

use std::time::Duration;

/// The delays between the attempts of an operation that may fail repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoublingDelay {
    pub first: Duration,
    pub longest: Duration,
}

impl DoublingDelay {
    /// Returns the delay after this many consecutive failures.
    pub fn after(self, failures: u32) -> Duration {
        let doubled = 2u32.saturating_pow(failures.saturating_sub(1));
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let delay = DoublingDelay { first: Duration::from_secs(1), longest: Duration::from_secs(5) };
        for (failures, seconds) in [(0, 1), (1, 1), (2, 2), (3, 4), (4, 5), (40, 5), (u32::MAX, 5)] {
            assert_eq!(delay.after(failures).as_secs(), seconds, "{failures}");
        }
    }
}
