//! How long runs take, as it was seen. Pure: times come in, in nanoseconds since any moment.
//!
//! What a run will take at least is the least of its last few times: one slow run must not have requests refused that
//! could be answered. What was not seen for a while is not known any more, so that a graph whose requests are all refused
//! is tried again.

use std::collections::{HashMap, VecDeque};

use super::fair::GraphId;

/// Runs that are remembered of each graph and number of rows.
const REMEMBERED: usize = 8;

/// Graphs and numbers of rows that are remembered.
const MOST: usize = 4096;

/// Nanoseconds after which a time is not believed any more.
const FRESH: u64 = 10_000_000_000;

/// Device times of runs.
#[derive(Debug, Default)]
pub(crate) struct Times {
    seen: HashMap<(GraphId, u64), Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    last: u64,
    nanos: VecDeque<u64>,
}

impl Times {
    /// A run of this graph on so many rows took `nanos` of a lane.
    pub fn learn(&mut self, graph: GraphId, rows: u64, nanos: u64, now: u64) {
        if self.seen.len() >= MOST && !self.seen.contains_key(&(graph, rows)) {
            let mut times: Vec<u64> = self.seen.values().map(|seen| seen.last).collect();
            let (_, median, _) = times.select_nth_unstable(MOST / 2);
            let median = *median;
            self.seen.retain(|_, seen| seen.last > median);
        }
        let seen = self.seen.entry((graph, rows)).or_default();
        seen.last = now;
        if seen.nanos.len() >= REMEMBERED {
            seen.nanos.pop_front();
        }
        seen.nanos.push_back(nanos);
    }

    /// Nanoseconds of a lane that a run will take at least, if that is known.
    pub fn at_least(&self, graph: GraphId, rows: u64, now: u64) -> Option<u64> {
        let seen = self.seen.get(&(graph, rows)).filter(|seen| now.saturating_sub(seen.last) <= FRESH)?;
        seen.nanos.iter().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_the_last_few_is_expected() {
        let mut times = Times::default();
        assert_eq!(times.at_least(1, 1, 0), None);
        times.learn(1, 1, 50, 0);
        times.learn(1, 1, 9_000, 0);
        times.learn(1, 4, 120, 0);
        assert_eq!(times.at_least(1, 1, 0), Some(50));
        assert_eq!(times.at_least(1, 4, 0), Some(120));
        assert_eq!(times.at_least(2, 1, 0), None);
        for _ in 0..REMEMBERED {
            times.learn(1, 1, 70, 0);
        }
        assert_eq!(times.at_least(1, 1, 0), Some(70), "the machine has become slower");
    }

    #[test]
    fn what_was_not_seen_for_long_is_not_known() {
        let mut times = Times::default();
        times.learn(1, 1, 50, 100);
        assert_eq!(times.at_least(1, 1, 100 + FRESH), Some(50));
        assert_eq!(times.at_least(1, 1, 101 + FRESH), None);
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let mut times = Times::default();
        for graph in 0..20_000 {
            times.learn(graph, 1, 1, graph);
            assert!(times.seen.len() <= MOST);
        }
        assert_eq!(times.at_least(19_999, 1, 19_999), Some(1));
    }
}
