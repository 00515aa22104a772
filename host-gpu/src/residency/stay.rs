//! Models' time in memory: how many bytes of them were there for how long, and who used those that are everybody's.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::quota::{Ledger, SYSTEM};
use crate::tab::Tab;

/// What was held of a device's memory for a while, not by requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub device: Arc<str>,
    pub owner: Arc<str>,
    /// The model's, if it was held for one.
    pub digest: Option<Arc<str>>,
    /// Bytes × nanoseconds.
    pub byte_ns: u128,
    /// The tenants that used it in that time, if it is [`SYSTEM`]'s and so is everybody's.
    pub users: BTreeSet<Arc<str>>,
}

/// A model's time in memory.
pub(crate) struct Stay {
    owner: Arc<str>,
    digest: Arc<str>,
    tab: Arc<Tab>,
    /// Who has used it since that was last told; of [`SYSTEM`]'s alone.
    users: Mutex<BTreeSet<Arc<str>>>,
}

/// All that have been in a device's memory, until what they had is told.
#[derive(Default)]
pub(super) struct Stays(Mutex<Vec<Arc<Stay>>>);

impl Stay {
    pub fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// Where its bytes are written.
    pub fn tab(&self) -> &Arc<Tab> {
        &self.tab
    }

    pub fn used_by(&self, tenant: &Arc<str>) {
        if *self.owner == *SYSTEM {
            let mut users = self.users();
            if !users.contains(tenant) {
                users.insert(Arc::clone(tenant));
            }
        }
    }

    fn users(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something of it is in memory, or on its way, apart from the `known` places that know of it.
    fn goes_on(self: &Arc<Self>, known: usize) -> bool {
        Arc::strong_count(self) > known || Arc::strong_count(&self.tab) > 1
    }
}

impl Stays {
    pub fn begin(&self, owner: &Arc<str>, digest: &Arc<str>) -> Arc<Stay> {
        let (owner, digest) = (Arc::clone(owner), Arc::clone(digest));
        let stay = Arc::new(Stay { owner, digest, tab: Arc::default(), users: Mutex::default() });
        self.lock().push(Arc::clone(&stay));
        stay
    }

    /// What has been held since this was last asked, all up to one moment. The ledger's own is the system's.
    pub fn take(&self, ledger: &Ledger) -> Vec<Held> {
        let stays: Vec<Arc<Stay>> = {
            let mut stays = self.lock();
            let all = stays.clone();
            // The others are told of for the last time.
            stays.retain(|stay| stay.goes_on(2));
            all
        };
        let settled = ledger.settle(stays.iter().map(|stay| &stay.tab).chain([ledger.own()]));
        let of = |stay: &Arc<Stay>| {
            let (owner, digest) = (Arc::clone(&stay.owner), Some(Arc::clone(&stay.digest)));
            (owner, digest, std::mem::take(&mut *stay.users()))
        };
        let own = (SYSTEM.into(), None, BTreeSet::new());
        let whose = stays.iter().map(of).chain([own]).zip(settled);
        let held = whose.map(|((owner, digest, users), byte_ns)| {
            let device = Arc::clone(ledger.device());
            Held { device, owner, digest, byte_ns, users }
        });
        held.filter(|held| held.byte_ns > 0).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Stay>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
