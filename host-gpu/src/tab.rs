//! What a request takes of a device, written down by whoever gives it: lanes their time, the ledger its bytes over time, loads
//! theirs.
//!
//! Nothing is measured twice: what is on all tabs is what the device has measured in all, to the nanosecond. A tab lives until
//! nothing is left that writes on it, which may be long after its request has failed or gone: what nobody has taken by then is
//! told to whoever opened it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What has been written on a tab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Nanoseconds that lanes were held: its part of its jobs', those that failed or were stopped included.
    pub device: u64,
    /// Nanoseconds of loading graphs and of making them ready for shapes, because the request was the first to want that.
    pub load: u64,
    /// Graphs loaded.
    pub loads: u64,
    /// Operators that its jobs ran.
    pub operators: u64,
    /// The most bytes that it had at one time.
    pub peak: u64,
    /// Bytes of the device's memory × nanoseconds.
    pub byte_ns: u128,
}

/// What whoever asks calls a request, so that those who ride together can be told of each other. It means nothing here.
pub type Mark = [u8; 24];

/// Tells of what was left on a tab.
type Rest = Box<dyn Fn(Used) + Send + Sync>;

/// What one request, or one graph that stays, takes of one device.
#[derive(Default)]
pub struct Tab {
    device: AtomicU64,
    load: AtomicU64,
    loads: AtomicU64,
    operators: AtomicU64,
    peak: AtomicU64,
    memory: Mutex<Integral>,
    rest: Option<Rest>,
    mark: Option<Mark>,
}

impl Tab {
    /// A tab whose opener is told, when nothing writes on it any more, what it has not taken itself.
    pub fn new(rest: impl Fn(Used) + Send + Sync + 'static) -> Self {
        let mut tab = Self::default();
        tab.rest = Some(Box::new(rest));
        tab
    }

    /// The same for a request that those who ride with it are told of.
    pub fn marked(mut self, mark: Option<Mark>) -> Self {
        self.mark = mark;
        self
    }

    pub(crate) fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// What has been written since this was last asked, which is the asker's now. Bytes count up to their last change.
    pub fn take(&self) -> Used {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        Used {
            device: take(&self.device),
            load: take(&self.load),
            loads: take(&self.loads),
            operators: take(&self.operators),
            peak: take(&self.peak),
            byte_ns: std::mem::take(&mut self.memory().sum),
        }
    }

    pub(crate) fn used_lane(&self, nanos: u64) {
        self.device.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Something was made ready for it, a graph if `is_graph`.
    pub(crate) fn loaded(&self, nanos: u64, is_graph: bool) {
        self.load.fetch_add(nanos, Ordering::Relaxed);
        self.loads.fetch_add(is_graph.into(), Ordering::Relaxed);
    }

    pub(crate) fn ran(&self, operators: u64) {
        self.operators.fetch_add(operators, Ordering::Relaxed);
    }

    /// It has so many bytes more from this time of its ledger's on.
    pub(crate) fn grow(&self, bytes: u64, now: u64) {
        let mut memory = self.memory();
        let amount = memory.amount.saturating_add(bytes);
        memory.set(amount, now);
        self.peak.fetch_max(amount, Ordering::Relaxed);
    }

    pub(crate) fn shrink(&self, bytes: u64, now: u64) {
        let mut memory = self.memory();
        let amount = memory.amount.saturating_sub(bytes);
        memory.set(amount, now);
    }

    /// Takes its bytes × nanoseconds up to this time of its ledger's.
    pub(crate) fn settle(&self, now: u64) -> u128 {
        let mut memory = self.memory();
        let amount = memory.amount;
        memory.set(amount, now);
        std::mem::take(&mut memory.sum)
    }

    fn memory(&self) -> MutexGuard<'_, Integral> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        let left = self.take();
        // A peak alone is nobody's use.
        if let Some(rest) = self.rest.as_ref().filter(|_| Used { peak: 0, ..left } != Used::default()) {
            rest(left);
        }
    }
}

impl fmt::Debug for Tab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tab").finish_non_exhaustive()
    }
}

/// An amount over time.
#[derive(Debug, Default)]
pub struct Integral {
    /// What it is since it was last set.
    pub amount: u64,
    since: u64,
    /// The amount × nanoseconds, up to when it was last set.
    pub sum: u128,
}

impl Integral {
    /// It is so much from `now` on, in nanoseconds.
    pub fn set(&mut self, amount: u64, now: u64) {
        let span = now.saturating_sub(self.since);
        self.sum = self.sum.saturating_add(u128::from(self.amount) * u128::from(span));
        (self.amount, self.since) = (amount, now.max(self.since));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_taken_is_taken_once_and_the_rest_is_told() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tab = Arc::new(Tab::new({
            let told = Arc::clone(&told);
            move |used| told.lock().unwrap().push(used)
        }));
        tab.used_lane(5);
        tab.grow(10, 100);
        tab.grow(5, 103);
        tab.shrink(12, 105);
        let used = Used { device: 5, peak: 15, byte_ns: 10 * 3 + 15 * 2, ..Used::default() };
        assert_eq!(tab.take(), used);
        assert_eq!(tab.take(), Used::default());
        let other = Arc::clone(&tab);
        drop(tab);
        other.used_lane(1);
        other.shrink(3, 115);
        assert_eq!(*told.lock().unwrap(), [], "there is still someone who writes on it");
        drop(other);
        assert_eq!(*told.lock().unwrap(), [Used { device: 1, byte_ns: 30, ..Used::default() }]);
    }

    #[test]
    fn a_tab_that_was_taken_to_its_end_tells_nothing() {
        let tab = Tab::new(|used| panic!("told of {used:?}"));
        tab.loaded(7, true);
        assert_eq!(tab.take(), Used { load: 7, loads: 1, ..Used::default() });
    }
}
