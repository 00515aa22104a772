//! What counts are kept in: atomics, added to without order among them. A scrape reads them one after another, so of a call
//! that ends meanwhile it may see one count and not yet the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One count for each of something that is numbered from 0.
#[derive(Debug)]
pub struct Counts(Box<[Count]>);

impl Counts {
    pub fn new(of: usize) -> Self {
        Self((0..of).map(|_| Count::default()).collect())
    }

    pub fn add(&self, number: usize) {
        if let Some(count) = self.0.get(number) {
            count.add(1);
        }
    }

    pub fn get(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(Count::get)
    }
}

/// How many of something live.
#[derive(Debug, Default)]
pub struct Live(Arc<AtomicU64>);

/// A thing that is counted while it lives.
pub struct Gauge(Arc<AtomicU64>);

impl Live {
    /// Counts one while the answer lives.
    pub fn one(&self) -> Gauge {
        self.0.fetch_add(1, Ordering::Relaxed);
        Gauge(Arc::clone(&self.0))
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const MICRO: u64 = 1000;
const MILLI: u64 = 1000 * MICRO;
const SECOND: u64 = 1000 * MILLI;

/// Upper bounds of calls' times, in nanoseconds. A call of an empty function takes some 100 µs, and one may last for minutes.
pub const CALL_BOUNDS: &[u64] = &[
    100 * MICRO,
    250 * MICRO,
    500 * MICRO,
    MILLI,
    2500 * MICRO,
    5 * MILLI,
    10 * MILLI,
    25 * MILLI,
    50 * MILLI,
    100 * MILLI,
    250 * MILLI,
    500 * MILLI,
    SECOND,
    2500 * MILLI,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
];

/// Upper bounds of times inside the server, in nanoseconds: waiting for a lane, holding one, making a sandbox.
pub const INNER_BOUNDS: &[u64] = &[
    10 * MICRO,
    25 * MICRO,
    50 * MICRO,
    100 * MICRO,
    250 * MICRO,
    500 * MICRO,
    MILLI,
    2500 * MICRO,
    5 * MILLI,
    10 * MILLI,
    25 * MILLI,
    50 * MILLI,
    100 * MILLI,
    250 * MILLI,
    500 * MILLI,
    SECOND,
    2500 * MILLI,
    5 * SECOND,
    10 * SECOND,
];

/// Durations, by bounds that are chosen. (Native histograms have no text form that Prometheus reads.)
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    counts: Counts,
    nanos: Count,
}

/// A histogram as it stood.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// Upper bounds in nanoseconds, all but that of the last bucket, which has none.
    pub bounds: &'static [u64],
    /// How many were in each bucket; one more than there are bounds.
    pub counts: Vec<u64>,
    /// The sum in nanoseconds.
    pub nanos: u64,
}

impl Histogram {
    /// `bounds` are in nanoseconds, and rise.
    pub fn new(bounds: &'static [u64]) -> Self {
        Self { bounds, counts: Counts::new(bounds.len() + 1), nanos: Count::default() }
    }

    pub fn observe(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts.add(self.bounds.partition_point(|bound| *bound < nanos));
        self.nanos.add(nanos);
    }

    pub fn get(&self) -> Spread {
        Spread { bounds: self.bounds, counts: self.counts.get().collect(), nanos: self.nanos.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_a_bound_is_below_it() {
        for bounds in [CALL_BOUNDS, INNER_BOUNDS] {
            assert!(bounds.is_sorted_by(|a, b| a < b));
            let histogram = Histogram::new(bounds);
            histogram.observe(Duration::from_nanos(bounds[1]));
            histogram.observe(Duration::from_nanos(bounds[1] + 1));
            histogram.observe(Duration::ZERO);
            histogram.observe(Duration::from_secs(3600));
            let Spread { counts, nanos, .. } = histogram.get();
            assert_eq!(counts.len(), bounds.len() + 1);
            assert_eq!(counts[..3], [1, 1, 1]);
            assert_eq!(counts.last(), Some(&1));
            assert_eq!(nanos, 2 * bounds[1] + 1 + 3600 * SECOND);
        }
    }

    #[test]
    fn what_lives_is_counted_until_it_goes() {
        let live = Live::default();
        let (one, two) = (live.one(), live.one());
        assert_eq!(live.get(), 2);
        drop((one, two));
        assert_eq!(live.get(), 0);
    }
}
