//! Who rides along. Pure: no clock, no threads; times come in, in nanoseconds since any moment.
//!
//! Requests for the same graph whose shapes agree ride together, as rows of one batch, whoever sent them. The first one
//! starts a train, which waits for a lane like any job does; until it leaves, others may board it. A train may not leave
//! before it has a preferred number of rows, or is full, or its first rider has waited long enough. Rows of zeros may fill
//! it up to the next preferred number then.
//!
//! What a batch costs is split by rows. The zeros are paid for by those who boarded after the last number of rows that
//! would have needed none.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use crate::error::nanos;
use crate::sched::fair::JobId;

/// The most bytes of the inputs of one batch, rows of zeros included. They are copied into one before the batch runs, and are
/// on nobody's account until it does.
pub(crate) const MAX_BATCH_BYTES: u64 = 64 << 20;

/// How requests of one model may ride together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batching {
    /// The most rows of one batch; 1 for none.
    pub max_batch: u64,
    /// How long the first request of a batch may wait for others.
    pub max_queue_delay: Duration,
    /// Numbers of rows that a batch should have, from the least; any when empty.
    pub preferred: Vec<u64>,
    /// Whether rows of zeros are added up to the next preferred number.
    pub padding: bool,
}

impl Default for Batching {
    fn default() -> Self {
        Self { max_batch: 1, max_queue_delay: Duration::ZERO, preferred: Vec::new(), padding: false }
    }
}

/// Trains that have not left, by what may ride together.
#[derive(Debug)]
pub(crate) struct Trains<K, R> {
    open: HashMap<K, JobId>,
    waiting: HashMap<JobId, Train<K, R>>,
}

#[derive(Debug)]
struct Train<K, R> {
    key: K,
    /// Each with its rows, by arrival.
    riders: Vec<(R, u64)>,
    /// Nanoseconds, when the first of them came.
    started: u64,
}

/// Where a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boarded {
    pub job: JobId,
    /// Whether it is the first one.
    pub starts: bool,
    /// When the train may leave; 0 for now.
    pub ready: u64,
    /// Rows on board.
    pub rows: u64,
}

/// A train that leaves.
#[derive(Debug)]
pub(crate) struct Departure<R> {
    pub riders: Vec<(R, u64)>,
    pub filling: Filling,
}

/// Rows of zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Filling {
    pub rows: u64,
    /// Riders before this one have no part in it.
    pub caused_from: usize,
}

impl Batching {
    /// Whether requests may ride together at all.
    pub fn is_on(&self) -> bool {
        self.max_batch > 1
    }

    /// The same for rows of so many bytes: there are no more of them than make up [`MAX_BATCH_BYTES`].
    pub(crate) fn fitting(self: &Arc<Self>, row: u64) -> Arc<Self> {
        let most = (MAX_BATCH_BYTES / row.max(1)).max(1);
        if most >= self.max_batch {
            return Arc::clone(self);
        }
        Arc::new(Self { max_batch: most, ..Self::clone(self) })
    }

    fn may_leave(&self, rows: u64) -> bool {
        rows >= self.max_batch || self.preferred.contains(&rows)
    }

    /// What fills up these riders' rows.
    fn filling(&self, rows: &[u64]) -> Filling {
        let total = rows.iter().sum();
        let larger = self.preferred.iter().copied().filter(|size| *size > total && *size <= self.max_batch);
        let Some(next) = larger.min().filter(|_| self.padding && !self.may_leave(total)) else {
            return Filling::default();
        };
        let below = self.preferred.iter().copied().filter(|size| *size < total).max().unwrap_or(0);
        let mut on_board = 0;
        let caused_from = rows.iter().take_while(|rows| {
            on_board += **rows;
            on_board <= below
        });
        Filling { caused_from: caused_from.count(), rows: next - total }
    }
}

impl<K: Eq + Hash + Clone, R> Trains<K, R> {
    pub fn new() -> Self {
        Self { open: HashMap::new(), waiting: HashMap::new() }
    }

    /// A request boards the train that waits for its likes, or starts one under the number `new`.
    pub fn board(
        &mut self,
        key: &K,
        (rider, rows): (R, u64),
        batching: &Batching,
        (new, now): (JobId, u64),
    ) -> Boarded {
        let open = self.open.get(key).copied();
        let train = open.and_then(|job| self.waiting.get_mut(&job).map(|train| (job, train)));
        let (job, on_board, started) = match train {
            Some((job, train)) if train.rows().saturating_add(rows) <= batching.max_batch => {
                train.riders.push((rider, rows));
                (job, train.rows(), train.started)
            }
            _ => {
                let train = Train { key: key.clone(), riders: vec![(rider, rows)], started: now };
                self.waiting.insert(new, train);
                self.open.insert(key.clone(), new);
                (new, rows, now)
            }
        };
        if on_board >= batching.max_batch {
            self.open.remove(key);
        }
        let delay = nanos(batching.max_queue_delay);
        let ready = if batching.may_leave(on_board) { 0 } else { started.saturating_add(delay) };
        Boarded { job, starts: job == new, ready, rows: on_board }
    }

    /// A rider leaves a train that has not left; which one it was.
    pub fn leave(&mut self, job: JobId, is: impl FnMut(&(R, u64)) -> bool) -> Option<usize> {
        let train = self.waiting.get_mut(&job)?;
        let at = train.riders.iter().position(is)?;
        train.riders.remove(at);
        if train.riders.is_empty() {
            self.take(job);
        }
        Some(at)
    }

    /// The train leaves.
    pub fn depart(&mut self, job: JobId, batching: &Batching) -> Option<Departure<R>> {
        let Train { riders, .. } = self.take(job)?;
        let rows: Vec<u64> = riders.iter().map(|(_, rows)| *rows).collect();
        Some(Departure { filling: batching.filling(&rows), riders })
    }

    fn take(&mut self, job: JobId) -> Option<Train<K, R>> {
        let train = self.waiting.remove(&job)?;
        if self.open.get(&train.key) == Some(&job) {
            self.open.remove(&train.key);
        }
        Some(train)
    }
}

impl<K, R> Train<K, R> {
    fn rows(&self) -> u64 {
        self.riders.iter().map(|(_, rows)| rows).sum()
    }
}

/// Splits what a batch took among its riders, by their rows, and what the zeros took among those who caused them. The
/// parts are whole numbers, and their sum is the total.
pub(crate) fn split(total: u64, rows: &[u64], filling: Filling) -> Vec<u64> {
    let wide = u128::from;
    // A request without rows took time too.
    let rows = || rows.iter().map(|rows| wide((*rows).max(1)));
    let caused: u128 = rows().skip(filling.caused_from).sum();
    let weight = |(rider, rows): (usize, u128)| {
        let filling = if rider >= filling.caused_from { wide(filling.rows) } else { 0 };
        rows * (caused.max(1) + filling)
    };
    let weights: Vec<u128> = rows().enumerate().map(weight).collect();
    let whole = weights.iter().sum::<u128>().max(1);
    let (mut past, mut given) = (0u128, 0u64);
    let parts = weights.iter().map(|weight| {
        past += weight;
        let upto = u64::try_from(wide(total) * past / whole).unwrap_or(total);
        let part = upto - given;
        given = upto;
        part
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn batching(max_batch: u64, preferred: &[u64], padding: bool) -> Batching {
        let max_queue_delay = Duration::from_nanos(100);
        Batching { max_batch, max_queue_delay, preferred: preferred.to_vec(), padding }
    }

    #[test]
    fn requests_board_until_the_train_is_full() {
        let (mut trains, batching) = (Trains::new(), batching(4, &[2], false));
        let mut board = |rider, rows, new| trains.board(&"key", (rider, rows), &batching, (new, new));
        assert_eq!(board('a', 1, 10), Boarded { job: 10, starts: true, ready: 110, rows: 1 });
        assert_eq!(board('b', 1, 11), Boarded { job: 10, starts: false, ready: 0, rows: 2 }, "preferred");
        assert_eq!(board('c', 1, 12), Boarded { job: 10, starts: false, ready: 110, rows: 3 });
        assert_eq!(board('d', 2, 13), Boarded { job: 13, starts: true, ready: 0, rows: 2 }, "no room");
        assert_eq!(board('e', 2, 14), Boarded { job: 13, starts: false, ready: 0, rows: 4 }, "full");
        assert_eq!(board('f', 9, 15), Boarded { job: 15, starts: true, ready: 0, rows: 9 }, "more than fit");
        assert_eq!(trains.leave(10, |(rider, _)| *rider == 'b'), Some(1));
        assert_eq!(trains.leave(13, |(rider, _)| *rider == 'd'), Some(0));
        assert_eq!(trains.leave(13, |(rider, _)| *rider == 'e'), Some(0));
        assert!(trains.depart(13, &batching).is_none(), "nobody is on it");
        let gone = trains.depart(10, &batching).unwrap();
        assert_eq!(gone.riders, [('a', 1), ('c', 1)]);
        assert!(trains.depart(15, &batching).is_some());
        assert!(trains.open.is_empty() && trains.waiting.is_empty());
    }

    #[test]
    fn zeros_fill_a_train_up_to_a_preferred_number_of_rows() {
        let none = Filling::default();
        assert_eq!(batching(8, &[2, 4], false).filling(&[1, 1, 1]), none);
        assert_eq!(batching(8, &[2, 4], true).filling(&[1, 1, 1]), Filling { rows: 1, caused_from: 2 });
        assert_eq!(batching(8, &[4], true).filling(&[1, 1]), Filling { rows: 2, caused_from: 0 });
        assert_eq!(batching(8, &[2, 4], true).filling(&[3, 2]), none, "nothing to fill up to");
        assert_eq!(batching(8, &[2, 16], true).filling(&[3, 2]), none, "nor here");
        assert_eq!(batching(8, &[2, 4], true).filling(&[4, 4]), none, "full");
    }

    #[test]
    fn zeros_are_paid_for_by_those_who_caused_them() {
        assert_eq!(split(400, &[1, 1, 1], Filling { rows: 1, caused_from: 2 }), [100, 100, 200]);
        assert_eq!(split(100, &[1, 2], Filling::default()), [33, 67]);
        // The example of docs/metering.md.
        let filling = Filling { rows: 2, caused_from: 2 };
        assert_eq!(split(4000, &[1, 3, 2], filling), [500, 1500, 2000]);
        assert_eq!(split(1001, &[1, 3, 2], filling), [125, 375, 501]);
        assert_eq!(split(7, &[0], Filling::default()), [7], "it took time without any");
    }

    #[test]
    fn a_batch_has_no_more_bytes_than_it_may() {
        let batching = Arc::new(batching(8, &[2, 6], true));
        assert!(Arc::ptr_eq(&batching.fitting(MAX_BATCH_BYTES / 8), &batching));
        let five = batching.fitting(MAX_BATCH_BYTES / 6 + 1);
        assert_eq!(*five, Batching { max_batch: 5, ..Batching::clone(&batching) });
        assert_eq!(five.filling(&[1, 2]), Filling::default(), "nor of zeros");
        assert!(five.may_leave(5) && !five.may_leave(4));
        assert_eq!(batching.fitting(u64::MAX).max_batch, 1, "one row always rides");
        assert!(Arc::ptr_eq(&batching.fitting(0), &batching));
    }

    proptest! {
        #[test]
        fn parts_are_whole_and_make_up_the_total(
            total in any::<u64>(),
            rows in vec(1..1000u64, 1..50),
            filling in 0..100u64,
            from in any::<prop::sample::Index>(),
        ) {
            let filling = Filling { rows: filling, caused_from: from.index(rows.len()) };
            let parts = split(total, &rows, filling);
            prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(total));
            let all = rows.iter().sum::<u64>() + filling.rows;
            for (part, rows) in parts.iter().zip(&rows) {
                // Nobody pays less than for its own rows.
                prop_assert!(u128::from(*part) + 1 >= u128::from(total) * u128::from(*rows) / u128::from(all));
            }
        }

        /// Every rider leaves once, no train has more rows than fit, and those that leave are the first who came.
        #[test]
        fn everybody_rides_once(
            requests in vec((1..6u64, 0..3u8, 0..4u8), 1..100),
            max_batch in 1..10u64,
            preferred in vec(1..10u64, 0..3),
            padding in any::<bool>(),
        ) {
            let batching = batching(max_batch, &preferred, padding);
            let mut trains = Trains::new();
            let (mut jobs, mut rode) = (std::collections::VecDeque::new(), Vec::new());
            let mut depart = |trains: &mut Trains<u8, usize>, jobs: &mut std::collections::VecDeque<JobId>| {
                let gone = trains.depart(jobs.pop_front().unwrap(), &batching).unwrap();
                let rows: u64 = gone.riders.iter().map(|(_, rows)| rows).sum();
                assert!(!gone.riders.is_empty());
                assert!(rows <= batching.max_batch || gone.riders.len() == 1);
                assert!(gone.riders.is_sorted());
                rode.extend(gone.riders.iter().map(|(rider, _)| *rider));
            };
            for (rider, (rows, key, departs)) in requests.iter().enumerate() {
                let boarded = trains.board(key, (rider, *rows), &batching, (rider as u64, 0));
                if boarded.starts {
                    jobs.push_back(boarded.job);
                }
                if *departs == 0 {
                    depart(&mut trains, &mut jobs);
                }
            }
            while !jobs.is_empty() {
                depart(&mut trains, &mut jobs);
            }
            rode.sort_unstable();
            prop_assert_eq!(rode, (0..requests.len()).collect::<Vec<_>>());
            prop_assert!(trains.open.is_empty() && trains.waiting.is_empty());
        }
    }
}
