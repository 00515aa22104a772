//! How long runs take, as it was seen. Pure: times come in, in nanoseconds since any moment.
//!
//! What a run will take at least is the least of its last few times: one slow run must not have requests refused that
//! could be answered. It is known of the very shapes of its inputs and not of the graph alone: many tenants may use that,
//! and the long inputs of one say nothing of the short ones of another. What was not seen for a while is not known any more, so that a graph whose requests are all refused
//! is tried again.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::fair::GraphId;

/// Runs that are remembered of each kind.
const REMEMBERED: usize = 8;

/// Kinds of runs that are remembered: those that were not seen for longest are forgotten.
const MOST: usize = 4096;

/// Nanoseconds after which a time is not believed any more.
const FRESH: u64 = 10_000_000_000;

/// What is run: a graph on so many rows, and a [number](shape) that stands for the shape of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Work {
    pub graph: GraphId,
    pub rows: u64,
    pub shape: u64,
}

/// Stands for the shapes of all inputs. Where they are `rows` of a batch, it is the shapes of one row.
pub(crate) fn shape<'a>(inputs: impl Iterator<Item = &'a [usize]>, rows: bool) -> u64 {
    let mut hasher = DefaultHasher::new();
    for input in inputs {
        input.get(usize::from(rows)..).hash(&mut hasher);
    }
    hasher.finish()
}

/// Device times of runs.
#[derive(Debug, Default)]
pub(crate) struct Times {
    seen: HashMap<Work, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    last: u64,
    nanos: VecDeque<u64>,
}

impl Times {
    /// A run took `nanos` of a lane.
    pub fn learn(&mut self, work: Work, nanos: u64, now: u64) {
        if self.seen.len() >= MOST && !self.seen.contains_key(&work) {
            let mut times: Vec<u64> = self.seen.values().map(|seen| seen.last).collect();
            let (_, median, _) = times.select_nth_unstable(MOST / 2);
            let median = *median;
            self.seen.retain(|_, seen| seen.last > median);
        }
        let seen = self.seen.entry(work).or_default();
        seen.last = now;
        if seen.nanos.len() >= REMEMBERED {
            seen.nanos.pop_front();
        }
        seen.nanos.push_back(nanos);
    }

    /// Nanoseconds of a lane that a run will take at least, if that is known.
    pub fn at_least(&self, work: Work, now: u64) -> Option<u64> {
        let seen = self.seen.get(&work).filter(|seen| now.saturating_sub(seen.last) <= FRESH)?;
        seen.nanos.iter().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(graph: GraphId, rows: u64) -> Work {
        Work { graph, rows, shape: 0 }
    }

    #[test]
    fn the_least_of_the_last_few_is_expected() {
        let mut times = Times::default();
        assert_eq!(times.at_least(work(1, 1), 0), None);
        times.learn(work(1, 1), 50, 0);
        times.learn(work(1, 1), 9_000, 0);
        times.learn(work(1, 4), 120, 0);
        assert_eq!(times.at_least(work(1, 1), 0), Some(50));
        assert_eq!(times.at_least(work(1, 4), 0), Some(120));
        assert_eq!(times.at_least(work(2, 1), 0), None);
        for _ in 0..REMEMBERED {
            times.learn(work(1, 1), 70, 0);
        }
        assert_eq!(times.at_least(work(1, 1), 0), Some(70), "the machine has become slower");
    }

    #[test]
    fn each_shape_has_its_own_times() {
        let mut times = Times::default();
        let of = |shapes: &[&[usize]], rows| shape(shapes.iter().copied(), rows);
        let of_rows = |shapes: &[&[usize]]| Work { shape: of(shapes, true), ..work(1, 2) };
        times.learn(of_rows(&[&[2, 4096], &[2]]), 9_000, 0);
        times.learn(of_rows(&[&[2, 16], &[2]]), 50, 0);
        assert_eq!(times.at_least(of_rows(&[&[1, 16], &[1]]), 0), Some(50), "it is the shape of a row");
        assert_eq!(times.at_least(of_rows(&[&[2, 4096], &[2]]), 0), Some(9_000));
        assert_eq!(times.at_least(of_rows(&[&[2, 17], &[2]]), 0), None);
        assert_ne!(of(&[&[2, 3], &[4]], true), of(&[&[2], &[4, 3]], true), "axes are those of their inputs");
        assert_ne!(of(&[&[2, 3]], false), of(&[&[1, 3]], false), "a first axis that is not of rows counts");
    }

    #[test]
    fn what_was_not_seen_for_long_is_not_known() {
        let mut times = Times::default();
        times.learn(work(1, 1), 50, 100);
        assert_eq!(times.at_least(work(1, 1), 100 + FRESH), Some(50));
        assert_eq!(times.at_least(work(1, 1), 101 + FRESH), None);
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let mut times = Times::default();
        for shape in 0..20_000 {
            times.learn(Work { shape, ..work(shape, 1) }, 1, shape);
            assert!(times.seen.len() <= MOST);
        }
        assert_eq!(times.at_least(Work { shape: 19_999, ..work(19_999, 1) }, 19_999), Some(1));
    }
}
