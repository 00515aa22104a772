//! The ledger of one device's bytes: who has how many of them, for what, and how many more a tenant may have.
//!
//! Nothing here is measured. Whatever takes memory of the device reserves its bytes here first, on the account of one
//! tenant, and what would pass the tenant's quota or the device's capacity is refused then: at once, since nobody
//! waits in a ledger. What belongs to no tenant is on the account [`SYSTEM`], so that the accounts always add up to
//! what is in use, to the byte.
//!
//! All books of a device are behind one lock, which is what makes that sum true at any moment. It is held for a
//! look-up and a few additions. An account is there as long as it has bytes or a quota of its own: tenants that come and
//! go leave nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::Error;
use crate::error::nanos;
use crate::tab::{Integral, Tab};

/// The account of what belongs to no tenant: the weights of public models, and reserves.
pub const SYSTEM: &str = "system";

/// What bytes are reserved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Graphs in memory.
    Weights,
    /// Jobs that run.
    Activations,
    /// What engines need besides.
    Reserve,
}

/// The books of a device at one moment. The accounts' totals add up to `used`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerStats {
    pub device: Arc<str>,
    /// Bytes that may be used at one time.
    pub capacity: u64,
    /// Bytes in use.
    pub used: u64,
    /// By tenant, in the order of their names.
    pub accounts: Vec<AccountStats>,
    /// Bytes × nanoseconds in use since the start, up to this moment.
    pub byte_ns: u128,
}

/// What a tenant has of a device, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountStats {
    pub tenant: Arc<str>,
    /// The most that it may have; absent, the device's capacity alone is the limit. Less than the total where it was
    /// lowered.
    pub quota: Option<u64>,
    pub weights: u64,
    pub activations: u64,
    pub reserve: u64,
}

impl AccountStats {
    fn empty(tenant: Arc<str>) -> Self {
        Self { tenant, quota: None, weights: 0, activations: 0, reserve: 0 }
    }

    /// Bytes of all kinds.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.activations).saturating_add(self.reserve)
    }

    fn of(&mut self, kind: Kind) -> &mut u64 {
        match kind {
            Kind::Weights => &mut self.weights,
            Kind::Activations => &mut self.activations,
            Kind::Reserve => &mut self.reserve,
        }
    }
}

/// The books of one device.
#[derive(Debug)]
pub(crate) struct Ledger {
    device: Arc<str>,
    capacity: u64,
    /// Where its time begins.
    epoch: Instant,
    /// What is held for no request and no graph.
    own: Arc<Tab>,
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    /// Bytes in use.
    used: Integral,
    accounts: BTreeMap<Arc<str>, AccountStats>,
    /// What a tenant may have that has not been given a quota.
    default_quota: Option<u64>,
    /// Tenants that have been given another one.
    given: HashMap<Arc<str>, Option<u64>>,
}

/// Bytes on a tenant's account, given back on drop.
#[derive(Debug)]
pub(crate) struct Reserved {
    ledger: Arc<Ledger>,
    tenant: Arc<str>,
    kind: Kind,
    bytes: u64,
    tab: Arc<Tab>,
}

impl Ledger {
    /// The books of `device`, of which `capacity` bytes may be used, and `quota` by a tenant that nobody gives another one.
    /// The account [`SYSTEM`] has none.
    pub fn new(device: &str, capacity: u64, quota: Option<u64>) -> Arc<Self> {
        let given = HashMap::new();
        let used = Integral::default();
        let books = Books { used, accounts: BTreeMap::new(), default_quota: quota, given };
        let (device, epoch, own) = (device.into(), Instant::now(), Arc::default());
        Arc::new(Self { device, capacity, epoch, own, books: Mutex::new(books) })
    }

    pub fn device(&self) -> &Arc<str> {
        &self.device
    }

    /// What is held for no request and no graph is on this tab.
    pub fn own(&self) -> &Arc<Tab> {
        &self.own
    }

    /// Takes what has been held, in bytes × nanoseconds, off these tabs of it: all up to the same moment.
    pub fn settle<'a>(&self, tabs: impl Iterator<Item = &'a Arc<Tab>>) -> Vec<u128> {
        let _still = self.lock();
        let now = self.now();
        tabs.map(|tab| tab.settle(now)).collect()
    }

    fn now(&self) -> u64 {
        nanos(self.epoch.elapsed())
    }

    /// Sets the most bytes that a tenant may have, or takes that limit away. One below what the tenant has takes
    /// nothing from it, but the tenant gets no more until it is under it again.
    pub fn set_quota(&self, tenant: &Arc<str>, quota: Option<u64>) {
        let mut books = self.lock();
        if quota == books.default_quota {
            books.given.remove(tenant);
        } else {
            books.given.insert(Arc::clone(tenant), quota);
        }
        books.account(tenant).quota = quota;
        books.forget_if_empty(tenant);
    }

    /// Takes bytes on a tenant's account, and writes on `tab` for how long. No bytes are always given.
    ///
    /// # Errors
    /// [`Error::TenantMemory`] if the tenant would have more than its quota; else [`Error::DeviceMemory`] if the
    /// device has not so many left.
    pub fn reserve(
        self: &Arc<Self>,
        tenant: &Arc<str>,
        kind: Kind,
        bytes: u64,
        tab: &Arc<Tab>,
    ) -> Result<Reserved, Error> {
        let (ledger, tenant, tab) = (Arc::clone(self), Arc::clone(tenant), Arc::clone(tab));
        let mut reserved = Reserved { ledger, tenant, kind, bytes: 0, tab };
        reserved.resize(bytes)?;
        Ok(reserved)
    }

    /// The books as they are now, all at one moment.
    pub fn snapshot(&self) -> LedgerStats {
        let mut books = self.lock();
        let used = books.used.amount;
        books.used.set(used, self.now());
        LedgerStats {
            device: Arc::clone(&self.device),
            capacity: self.capacity,
            used,
            accounts: books.accounts.values().cloned().collect(),
            byte_ns: books.used.sum,
        }
    }

    fn take(&self, tenant: &Arc<str>, kind: Kind, bytes: u64, tab: &Tab) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        let within = |used: u64, limit: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
        let mut books = self.lock();
        let account = books.accounts.get(tenant);
        let used = account.map_or(0, AccountStats::total);
        let quota = account.map_or_else(|| books.quota(tenant), |account| account.quota);
        if let Some(limit) = quota
            && within(used, limit).is_none()
        {
            return Err(Error::TenantMemory { tenant: tenant.to_string(), requested: bytes, used, limit });
        }
        let (used, limit) = (books.used.amount, self.capacity);
        let sum = within(used, limit).ok_or(Error::DeviceMemory { requested: bytes, used, limit })?;
        let now = self.now();
        books.used.set(sum, now);
        tab.grow(bytes, now);
        let held = books.account(tenant).of(kind);
        // No account has more than all together, whose sum was checked.
        *held = held.saturating_add(bytes);
        Ok(())
    }

    fn give_back(&self, tenant: &Arc<str>, kind: Kind, bytes: u64, tab: &Tab) {
        if bytes == 0 {
            return;
        }
        let mut books = self.lock();
        let (rest, now) = (books.used.amount.saturating_sub(bytes), self.now());
        books.used.set(rest, now);
        tab.shrink(bytes, now);
        let held = books.account(tenant).of(kind);
        *held = held.saturating_sub(bytes);
        books.forget_if_empty(tenant);
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// The quota of a tenant without an account.
    fn quota(&self, tenant: &Arc<str>) -> Option<u64> {
        match self.given.get(tenant) {
            Some(given) => *given,
            None => self.default_quota.filter(|_| **tenant != *SYSTEM),
        }
    }

    fn account(&mut self, tenant: &Arc<str>) -> &mut AccountStats {
        let quota = self.quota(tenant);
        let empty = || AccountStats { quota, ..AccountStats::empty(Arc::clone(tenant)) };
        self.accounts.entry(Arc::clone(tenant)).or_insert_with(empty)
    }

    fn forget_if_empty(&mut self, tenant: &Arc<str>) {
        let is_empty = self.accounts.get(tenant).is_some_and(|account| account.total() == 0);
        if is_empty && !self.given.contains_key(tenant) {
            self.accounts.remove(tenant);
        }
    }
}

impl Reserved {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whose account the bytes are on.
    pub fn tenant(&self) -> &Arc<str> {
        &self.tenant
    }

    /// Makes it `bytes` in all. To shrink never fails.
    ///
    /// # Errors
    /// As [`Ledger::reserve`] for the bytes that are to come; it is then what it was.
    pub fn resize(&mut self, bytes: u64) -> Result<(), Error> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.ledger.take(&self.tenant, self.kind, more, &self.tab)?,
            None => {
                let less = self.bytes.saturating_sub(bytes);
                self.ledger.give_back(&self.tenant, self.kind, less, &self.tab);
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.ledger.give_back(&self.tenant, self.kind, self.bytes, &self.tab);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use proptest::collection::vec;
    use proptest::prelude::*;

    const KINDS: [Kind; 3] = [Kind::Weights, Kind::Activations, Kind::Reserve];

    fn reconciled(stats: &LedgerStats) -> bool {
        let sum: u64 = stats.accounts.iter().map(AccountStats::total).sum();
        sum == stats.used && stats.used <= stats.capacity
    }

    #[test]
    fn what_is_reserved_comes_back_and_no_more_is_given_than_there_is() {
        let (ledger, t) = (Ledger::new("cpu", 10, None), "t".into());
        let six = ledger.reserve(&t, Kind::Weights, 6, ledger.own()).unwrap();
        let refused = ledger.reserve(&t, Kind::Activations, 5, ledger.own()).unwrap_err();
        assert_eq!(refused, Error::DeviceMemory { requested: 5, used: 6, limit: 10 });
        let mut four = ledger.reserve(&t, Kind::Activations, 4, ledger.own()).unwrap();
        assert!(ledger.reserve(&t, Kind::Weights, u64::MAX, ledger.own()).is_err(), "nor by overflow");
        assert!(four.resize(u64::MAX).is_err());
        assert_eq!(four.bytes(), 4, "a refused growth changes nothing");
        drop(six);
        four.resize(10).unwrap();
        drop(four);
        assert_eq!(ledger.snapshot().used, 0);
        assert_eq!(ledger.snapshot().accounts, [], "an account with nothing on it is forgotten");
    }

    #[test]
    fn sums_that_pass_the_largest_number_are_refused() {
        let (ledger, t) = (Ledger::new("cpu", u64::MAX, None), "t".into());
        ledger.set_quota(&t, Some(u64::MAX));
        let _most = ledger.reserve(&t, Kind::Weights, u64::MAX, ledger.own()).unwrap();
        assert!(matches!(
            ledger.reserve(&t, Kind::Weights, 1, ledger.own()),
            Err(Error::TenantMemory { .. })
        ));
        assert!(matches!(
            ledger.reserve(&SYSTEM.into(), Kind::Reserve, u64::MAX, ledger.own()),
            Err(Error::DeviceMemory { .. })
        ));
    }

    #[test]
    fn a_quota_below_what_is_held_takes_nothing_and_gives_nothing() {
        let (ledger, t) = (Ledger::new("cpu", 100, None), "t".into());
        let mut held = ledger.reserve(&t, Kind::Weights, 50, ledger.own()).unwrap();
        ledger.set_quota(&t, Some(20));
        assert_eq!(ledger.snapshot().accounts[0].total(), 50);
        let refused = ledger.reserve(&t, Kind::Activations, 1, ledger.own()).unwrap_err();
        let limit = Error::TenantMemory { tenant: "t".to_owned(), requested: 1, used: 50, limit: 20 };
        assert_eq!(refused, limit);
        assert!(
            ledger.reserve(&t, Kind::Activations, 0, ledger.own()).is_ok(),
            "a job that needs nothing runs"
        );
        assert!(
            ledger.reserve(&"u".into(), Kind::Weights, 50, ledger.own()).is_ok(),
            "it is nobody else's limit"
        );
        held.resize(19).unwrap();
        assert!(ledger.reserve(&t, Kind::Activations, 1, ledger.own()).is_ok());
        ledger.set_quota(&t, None);
        held.resize(100).unwrap();
    }

    #[test]
    fn who_has_been_given_no_quota_has_the_default_one() {
        let ledger = Ledger::new("cpu", 1000, Some(100));
        let (t, system): (Arc<str>, Arc<str>) = ("t".into(), SYSTEM.into());
        assert!(ledger.reserve(&t, Kind::Weights, 101, ledger.own()).is_err());
        let held = ledger.reserve(&t, Kind::Weights, 100, ledger.own()).unwrap();
        assert_eq!(ledger.snapshot().accounts[0].quota, Some(100));
        assert!(ledger.reserve(&t, Kind::Activations, 1, ledger.own()).is_err());
        let _public = ledger.reserve(&system, Kind::Weights, 500, ledger.own()).unwrap();
        ledger.set_quota(&t, None);
        assert!(ledger.reserve(&t, Kind::Activations, 100, ledger.own()).is_ok());
        drop(held);
        assert!(
            ledger.reserve(&t, Kind::Weights, 300, ledger.own()).is_ok(),
            "what it was given stays, also while it has nothing"
        );
        ledger.set_quota(&t, Some(100));
        assert_eq!(
            ledger.snapshot().accounts.len(),
            1,
            "one that has the default again, and nothing, leaves nothing"
        );
    }

    #[derive(Debug, Clone)]
    enum Step {
        Reserve { tenant: usize, kind: usize, bytes: u64 },
        Resize { which: usize, bytes: u64 },
        Drop { which: usize },
        Quota { tenant: usize, quota: Option<u64> },
    }

    fn step() -> impl Strategy<Value = Step> {
        let bytes = || prop_oneof![8 => 0..400_u64, 1 => Just(u64::MAX)];
        let quota = prop::option::of(0..600_u64);
        prop_oneof![
            4 => (0..4_usize, 0..3_usize, bytes())
                .prop_map(|(tenant, kind, bytes)| Step::Reserve { tenant, kind, bytes }),
            3 => (any::<usize>(), bytes()).prop_map(|(which, bytes)| Step::Resize { which, bytes }),
            2 => any::<usize>().prop_map(|which| Step::Drop { which }),
            1 => (0..4_usize, quota).prop_map(|(tenant, quota)| Step::Quota { tenant, quota }),
        ]
    }

    /// The same rules over a plain list of what is held.
    #[derive(Default)]
    struct Naive {
        held: Vec<(usize, usize, u64)>,
        quotas: HashMap<usize, u64>,
    }

    impl Naive {
        fn sum(&self, of: impl Fn(usize, usize) -> bool) -> u128 {
            self.held.iter().filter(|held| of(held.0, held.1)).map(|held| u128::from(held.2)).sum()
        }

        fn gives(&self, tenant: usize, more: u64) -> bool {
            let more = u128::from(more);
            let quota = self.quotas.get(&tenant).map_or(u128::MAX, |quota| u128::from(*quota));
            more == 0
                || self.sum(|of, _| of == tenant) + more <= quota && self.sum(|_, _| true) + more <= 1000
        }
    }

    proptest! {
        #[test]
        fn the_books_are_those_of_a_plain_list(steps in vec(step(), 0..200)) {
            let ledger = Ledger::new("cpu", 1000, None);
            let tenants: [Arc<str>; 4] = ["a".into(), "b".into(), "c".into(), SYSTEM.into()];
            let (mut naive, mut held) = (Naive::default(), Vec::<Reserved>::new());
            for step in steps {
                match step {
                    Step::Reserve { tenant, kind, bytes } => {
                        let reserved = ledger.reserve(&tenants[tenant], KINDS[kind], bytes, ledger.own());
                        prop_assert_eq!(reserved.is_ok(), naive.gives(tenant, bytes));
                        if let Ok(reserved) = reserved {
                            held.push(reserved);
                            naive.held.push((tenant, kind, bytes));
                        }
                    }
                    Step::Resize { which, bytes } if !held.is_empty() => {
                        let which = which % held.len();
                        let (tenant, _, before) = naive.held[which];
                        let gives = naive.gives(tenant, bytes.saturating_sub(before));
                        prop_assert_eq!(held[which].resize(bytes).is_ok(), gives);
                        naive.held[which].2 = if gives { bytes } else { before };
                    }
                    Step::Drop { which } if !held.is_empty() => {
                        let which = which % held.len();
                        held.swap_remove(which);
                        naive.held.swap_remove(which);
                    }
                    Step::Resize { .. } | Step::Drop { .. } => {}
                    Step::Quota { tenant, quota } => {
                        ledger.set_quota(&tenants[tenant], quota);
                        naive.quotas.remove(&tenant);
                        naive.quotas.extend(quota.map(|quota| (tenant, quota)));
                    }
                }
                let stats = ledger.snapshot();
                prop_assert!(reconciled(&stats));
                for (tenant, name) in tenants.iter().enumerate() {
                    let account = stats.accounts.iter().find(|account| account.tenant == *name).cloned();
                    let quota = naive.quotas.get(&tenant).copied();
                    let there = quota.is_some() || naive.sum(|of, _| of == tenant) > 0;
                    prop_assert_eq!(account.is_some(), there);
                    let mut account = account.unwrap_or_else(|| AccountStats::empty(name.clone()));
                    prop_assert_eq!(account.quota, quota);
                    for (kind, of) in KINDS.into_iter().enumerate() {
                        let sum = naive.sum(|t, k| (t, k) == (tenant, kind));
                        prop_assert_eq!(u128::from(*account.of(of)), sum);
                    }
                }
            }
            drop(held);
            prop_assert_eq!(ledger.snapshot().used, 0);
        }
    }

    #[test]
    fn sixty_four_tenants_at_once_leave_the_books_as_they_were() {
        let ledger = Ledger::new("cpu", 10_000, None);
        let _reserve = ledger.reserve(&SYSTEM.into(), Kind::Reserve, 100, ledger.own()).unwrap();
        let baseline = ledger.snapshot();
        let running = AtomicUsize::new(64);
        thread::scope(|scope| {
            for number in 0..64_u64 {
                let (ledger, running) = (&ledger, &running);
                scope.spawn(move || {
                    let tenant: Arc<str> = format!("tenant {number}").into();
                    ledger.set_quota(&tenant, Some(500));
                    let mut held = Vec::new();
                    for turn in 0..300_u64 {
                        let bytes = (turn * 7919 + number * 104_729) % 300;
                        let kind = if turn % 2 == 0 { Kind::Weights } else { Kind::Activations };
                        held.extend(ledger.reserve(&tenant, kind, bytes, ledger.own()));
                        if turn % 3 == 0 {
                            let _ = held.iter_mut().map(|reserved| reserved.resize(bytes)).all(|r| r.is_ok());
                        }
                        if held.len() > 3 {
                            held.remove(0);
                        }
                    }
                    drop(held);
                    ledger.set_quota(&tenant, None);
                    running.fetch_sub(1, Ordering::Relaxed);
                });
            }
            while running.load(Ordering::Relaxed) > 0 {
                let stats = ledger.snapshot();
                assert!(reconciled(&stats));
                assert!(stats.accounts.iter().all(|account| account.total() <= 500));
            }
        });
        let end = ledger.snapshot();
        assert_eq!(LedgerStats { byte_ns: baseline.byte_ns, ..end.clone() }, baseline);
        // What all had over time is on the one tab that they wrote on.
        let settled = ledger.settle(std::iter::once(ledger.own()));
        let after = ledger.snapshot().byte_ns;
        assert!(settled.iter().all(|settled| (end.byte_ns..=after).contains(settled)), "{settled:?}");
    }
}
