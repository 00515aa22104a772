//! Who has labels of their own. Tenants make functions as they like, and each label costs memory here and in whatever reads the
//! metrics: so there are so many tenants with labels of their own, and so many functions of each, and the others are counted
//! together under [`OTHER`].
//!
//! Those with the most calls have them. Now and then all are ranked by their calls, those of long ago for less; who has labels
//! keeps them until another has more than twice as many. Who gets or loses labels of its own is counted elsewhere from then on,
//! and what was counted stays where it was, so that no series ever goes down. A function that is deleted leaves its series
//! after a while, or when another needs its place.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::series::{Series, Tally};
use crate::config::MetricsConfig;

/// The label of all that have none of their own. No tenant and no function can have this name.
pub const OTHER: &str = "_other";

/// How often all are ranked, at most.
const RANKED_EVERY: Duration = Duration::from_secs(60);

/// Who has labels of their own.
#[derive(Debug)]
pub struct Cardinality(Mutex<State>);

#[derive(Debug)]
struct State {
    tenants: BTreeMap<Arc<str>, Tenant>,
    /// What all others count in.
    other: Arc<Series>,
    ranked: Instant,
    /// Entries at which those that are gone are looked for.
    full: usize,
}

#[derive(Debug)]
struct Tenant {
    /// What its functions without labels of their own count in; none for a tenant without.
    named: Option<Arc<Series>>,
    functions: BTreeMap<Arc<str>, Entry>,
    /// When it was last seen to have something of a device.
    seen: Option<Instant>,
}

/// A function that is deployed, or was a while ago.
#[derive(Debug, Default)]
struct Entry {
    tally: Weak<Tally>,
    named: Option<Arc<Series>>,
    gone: Option<Instant>,
    /// Calls of its tally that are in the weight already.
    weighed: u64,
    /// Its calls, those before the last ranking for half, and so on.
    weight: u64,
}

/// A pair of labels, with what is counted under it.
#[derive(Debug)]
pub struct Row {
    pub tenant: Arc<str>,
    pub function: Arc<str>,
    pub series: Arc<Series>,
    pub in_flight: u64,
}

/// All that is counted by tenant and function.
#[derive(Debug, Default)]
pub struct Shown {
    pub rows: Vec<Row>,
    pub folded_functions: u64,
    pub folded_tenants: u64,
}

impl Default for Cardinality {
    fn default() -> Self {
        let (other, ranked) = (Series::new(), Instant::now());
        Self(Mutex::new(State { tenants: BTreeMap::new(), other, ranked, full: 64 }))
    }
}

impl Cardinality {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a function that is new here counts with. It goes with its last holder.
    pub fn enter(&self, tenant: &Arc<str>, function: &Arc<str>, most: MetricsConfig) -> Arc<Tally> {
        let mut state = self.state();
        state.sweep(most.keep);
        let other = Arc::clone(&state.other);
        let tenant = state.tenant(tenant, most.tenants);
        if !tenant.functions.contains_key(function) {
            let named = tenant.place(most.functions_per_tenant).then(Series::new);
            tenant.functions.insert(Arc::clone(function), Entry { named, ..Entry::default() });
        }
        // One of that name that is gone leaves its series.
        let entry = tenant.functions.entry(Arc::clone(function)).or_default();
        let named = tenant.named.as_ref().map(|all| entry.named.as_ref().unwrap_or(all));
        let tally = Arc::new(Tally::new(Arc::clone(named.unwrap_or(&other))));
        (entry.tally, entry.gone, entry.weighed) = (Arc::downgrade(&tally), None, 0);
        tally
    }

    /// The label for what a tenant has of a device.
    pub fn label(&self, tenant: &Arc<str>, most: MetricsConfig) -> Arc<str> {
        if **tenant == *weir_gpu::SYSTEM {
            return Arc::clone(tenant);
        }
        let mut state = self.state();
        let entry = state.tenant(tenant, most.tenants);
        entry.seen = Some(Instant::now());
        if entry.named.is_some() { Arc::clone(tenant) } else { OTHER.into() }
    }

    /// Who has labels of their own now, and what was counted. Ranks all, if that is due at `now`.
    pub fn show(&self, most: MetricsConfig, now: Instant) -> Shown {
        let mut state = self.state();
        if now.saturating_duration_since(state.ranked) >= RANKED_EVERY {
            state.rank(most, now);
        }
        state.show()
    }
}

impl State {
    /// A tenant, with labels of its own if there is a place.
    fn tenant(&mut self, name: &Arc<str>, most: usize) -> &mut Tenant {
        if !self.tenants.contains_key(name) {
            let named = self.tenants.values().filter(|tenant| tenant.named.is_some()).count();
            let tenant = Tenant::new((named < most).then(Series::new));
            self.tenants.insert(Arc::clone(name), tenant);
        }
        self.tenants.entry(Arc::clone(name)).or_insert_with(|| Tenant::new(None))
    }

    /// Forgets what is gone, if there may be much of it: what is kept is never more than twice what is deployed.
    fn sweep(&mut self, keep: Duration) {
        let entries =
            |state: &Self| -> usize { state.tenants.values().map(|it| it.functions.len() + 1).sum() };
        if entries(self) >= self.full {
            self.forget(keep, Instant::now());
            self.full = entries(self).saturating_mul(2).max(64);
        }
    }

    /// Forgets what is gone and has no labels, or has had them for long enough since.
    fn forget(&mut self, keep: Duration, now: Instant) {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < keep;
        self.tenants.retain(|_, tenant| {
            tenant.functions.retain(|_, entry| {
                if entry.tally.strong_count() > 0 {
                    return true;
                }
                let gone = *entry.gone.get_or_insert(now);
                entry.named.is_some() && is_recent(gone)
            });
            !tenant.functions.is_empty() || tenant.seen.is_some_and(is_recent)
        });
    }

    /// Gives labels to those with the most calls, and takes them from the others.
    fn rank(&mut self, most: MetricsConfig, now: Instant) {
        self.ranked = now;
        self.forget(most.keep, now);
        let mut ranks = vec![];
        for (name, tenant) in &mut self.tenants {
            let weight = tenant.weigh();
            ranks.push((Reverse(rank(weight, tenant.named.is_some())), Arc::clone(name)));
        }
        ranks.sort_unstable();
        for (place, (_, name)) in ranks.iter().enumerate() {
            let Some(tenant) = self.tenants.get_mut(name) else { continue };
            if place < most.tenants {
                tenant.named.get_or_insert_with(Series::new);
                tenant.rank(most.functions_per_tenant);
            } else {
                tenant.named = None;
                tenant.rank(0);
            }
            for entry in tenant.functions.values() {
                let series = entry.named.as_ref().or(tenant.named.as_ref()).unwrap_or(&self.other);
                if let Some(tally) = entry.tally.upgrade() {
                    tally.turn_to(series);
                }
            }
        }
    }

    fn show(&self) -> Shown {
        let mut shown = Shown::default();
        let label = || -> Arc<str> { OTHER.into() };
        let mut of_others = 0;
        for (name, tenant) in &self.tenants {
            let mut of_other = 0;
            for (function, entry) in &tenant.functions {
                let tally = entry.tally.upgrade();
                let in_flight = tally.as_ref().map_or(0, |tally| tally.in_flight());
                match &entry.named {
                    Some(series) => shown.row(name, function, series, in_flight),
                    None => {
                        of_other += in_flight;
                        shown.folded_functions += u64::from(tally.is_some());
                    }
                }
            }
            match &tenant.named {
                Some(series) => shown.row(name, &label(), series, of_other),
                None => {
                    of_others += of_other;
                    shown.folded_tenants += 1;
                }
            }
        }
        shown.row(&label(), &label(), &self.other, of_others);
        shown
    }
}

/// Who is first: whoever has labels already counts for twice as much.
fn rank(weight: u64, named: bool) -> u64 {
    if named { weight.saturating_mul(2).saturating_add(1) } else { weight }
}

impl Tenant {
    fn new(named: Option<Arc<Series>>) -> Self {
        Self { named, functions: BTreeMap::new(), seen: None }
    }

    /// Whether one more function has a place for labels of its own. One that is gone makes room.
    fn place(&mut self, most: usize) -> bool {
        if self.named.is_none() {
            return false;
        }
        let named = self.functions.values().filter(|entry| entry.named.is_some()).count();
        if named < most {
            return true;
        }
        let is_gone = |entry: &Entry| entry.named.is_some() && entry.tally.strong_count() == 0;
        let gone = self.functions.iter().find(|(_, entry)| is_gone(entry)).map(|(name, _)| Arc::clone(name));
        gone.is_some_and(|gone| self.functions.remove(&gone).is_some())
    }

    /// The calls of all of its functions.
    fn weigh(&mut self) -> u64 {
        let mut sum = 0_u64;
        for entry in self.functions.values_mut() {
            let ended = entry.tally.upgrade().map_or(entry.weighed, |tally| tally.ended.get());
            let recent = ended.saturating_sub(std::mem::replace(&mut entry.weighed, ended));
            entry.weight = (entry.weight / 2).saturating_add(recent);
            sum = sum.saturating_add(entry.weight);
        }
        sum
    }

    fn rank(&mut self, most: usize) {
        let rank =
            |entry: &Entry| (entry.tally.strong_count() > 0, rank(entry.weight, entry.named.is_some()));
        let mut ranks: Vec<_> =
            self.functions.iter().map(|(name, entry)| (Reverse(rank(entry)), Arc::clone(name))).collect();
        ranks.sort_unstable();
        for (place, (_, name)) in ranks.iter().enumerate() {
            let Some(entry) = self.functions.get_mut(name) else { continue };
            if place >= most {
                entry.named = None;
            } else if entry.tally.strong_count() > 0 {
                entry.named.get_or_insert_with(Series::new);
            }
        }
    }
}

impl Shown {
    /// What has counted nothing yet has no row.
    fn row(&mut self, tenant: &Arc<str>, function: &Arc<str>, series: &Arc<Series>, in_flight: u64) {
        if series.is_used() || in_flight > 0 {
            let (tenant, function, series) = (Arc::clone(tenant), Arc::clone(function), Arc::clone(series));
            self.rows.push(Row { tenant, function, series, in_flight });
        }
    }
}

#[cfg(test)]
mod tests;
