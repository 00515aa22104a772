//! What calls of a function are counted in.
//!
//! A function holds its [`Tally`] and the tally its series, so that a call counts with a few additions and looks nothing up.
//! Which series that is, its own or one that many share, `cardinality.rs` decides, and may decide otherwise later.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use super::count::{CALL_BOUNDS, Count, Counts, Histogram};
use crate::http::problem::Code;
use crate::meter::record::Outcome;

/// Counts under one pair of labels, tenant and function.
#[derive(Debug)]
pub struct Series {
    /// When it began.
    pub since: SystemTime,
    /// By outcome.
    pub calls: Counts,
    pub seconds: Histogram,
    /// By code.
    pub problems: Counts,
    pub cold_starts: Count,
}

impl Series {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            since: SystemTime::now(),
            calls: Counts::new(Outcome::ALL.len()),
            seconds: Histogram::new(CALL_BOUNDS),
            problems: Counts::new(Code::ALL.len()),
            cold_starts: Count::default(),
        })
    }

    /// Whether it has counted anything.
    pub fn is_used(&self) -> bool {
        self.cold_starts.get() > 0 || self.calls.get().any(|calls| calls > 0)
    }
}

/// What a function counts with.
#[derive(Debug)]
pub struct Tally {
    /// Calls that have come.
    begun: Count,
    /// Calls of those that have ended.
    pub(super) ended: Count,
    series: RwLock<Arc<Series>>,
}

impl Tally {
    pub(super) fn new(series: Arc<Series>) -> Self {
        Self { begun: Count::default(), ended: Count::default(), series: RwLock::new(series) }
    }

    /// What is counted from now on goes to `series`.
    pub(super) fn turn_to(&self, series: &Arc<Series>) {
        let mut held = self.series.write().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&held, series) {
            *held = Arc::clone(series);
        }
    }

    /// A call has come.
    pub fn begin(&self) {
        self.begun.add(1);
    }

    /// A call that has come has ended, its answer's body included; with the problem that it was answered with, if it was.
    pub fn end(&self, outcome: Outcome, problem: Option<Code>, took: Duration) {
        self.ended.add(1);
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        series.calls.add(outcome as usize);
        series.seconds.observe(took);
        if let Some(code) = problem {
            series.problems.add(code as usize);
        }
    }

    /// A revision woke from zero.
    pub fn cold_start(&self) {
        self.series.read().unwrap_or_else(PoisonError::into_inner).cold_starts.add(1);
    }

    /// Calls that have come and not ended.
    pub(super) fn in_flight(&self) -> u64 {
        let ended = self.ended.get();
        self.begun.get().saturating_sub(ended)
    }
}
