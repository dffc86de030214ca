//! A histogram of latencies with a fixed size and an error below 2 %.

use std::time::Duration;

/// Buckets per doubling, as a power of two.
const PRECISION: u32 = 6;
/// Values up to 2^40 ns, about 18 minutes; longer values count as the highest.
const BUCKETS: usize = (40 - PRECISION as usize + 1) << PRECISION;

#[derive(Debug, Clone)]
pub(super) struct Histogram {
    counts: Vec<u32>,
    total: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }

    pub(super) fn record(&mut self, latency: Duration) {
        self.counts[bucket(latency.as_nanos() as u64).min(BUCKETS - 1)] += 1;
        self.total += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the latency in microseconds that this share of all values does not exceed.
    pub(super) fn quantile_us(&self, share: f64) -> f64 {
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank.max(1) {
                return lowest_of(index + 1) as f64 / 1000.0;
            }
        }
        0.0
    }
}

/// One bucket per value at first, then `2^PRECISION` buckets per doubling.
fn bucket(value: u64) -> usize {
    let doublings = (64 - PRECISION - 1).saturating_sub((value | 1).leading_zeros());
    ((u64::from(doublings) << PRECISION) + (value >> doublings)) as usize
}

fn lowest_of(index: usize) -> u64 {
    let index = index as u64;
    let doublings = (index >> PRECISION).saturating_sub(1);
    (index - (doublings << PRECISION)) << doublings
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Duration, Histogram, bucket, lowest_of};

    #[test]
    fn every_value_is_in_its_bucket() {
        for value in (0..300).chain((0..39).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1])) {
            let index = bucket(value);
            assert!(index < BUCKETS && lowest_of(index) <= value && value < lowest_of(index + 1), "{value}");
        }
    }

    #[test]
    fn quantiles_are_close() {
        let mut histogram = Histogram::new();
        for microseconds in 1..=1000 {
            histogram.record(Duration::from_micros(microseconds));
        }
        for (share, expected) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = histogram.quantile_us(share);
            assert!((found / expected - 1.0).abs() < 0.02, "{share}: {found}");
        }
        assert_eq!(Histogram::new().quantile_us(0.5), 0.0);
    }
}
