//! What of a device's memory is nobody's to have, on the account of the system: the books held against its driver's count.

use std::sync::Arc;

use super::{DriverMemory, Hardware};
use crate::quota::{Kind, Ledger, Reserved, SYSTEM};

/// The part of what is free when the device is started that is left so.
const LEFT_FREE: u64 = 20;

pub(super) struct Reserves {
    ledger: Arc<Ledger>,
    /// What the driver, the engine and other processes take.
    taken: Reserved,
    /// What is left free. It gives way to `taken`.
    free: Reserved,
    /// What `free` is to be.
    left_free: u64,
}

impl Reserves {
    /// Of a device that nobody uses yet, of which `memory` bytes may be used, if that is said.
    ///
    /// # Errors
    /// If the books have not so many: a sentence.
    pub fn new(ledger: &Arc<Ledger>, there: DriverMemory, memory: Option<u64>) -> Result<Self, String> {
        let all = there.free.saturating_sub(there.free / LEFT_FREE);
        let left_free = there.free.saturating_sub(memory.unwrap_or(all));
        let reserve = |bytes| {
            let reserved = ledger.reserve(&SYSTEM.into(), Kind::Reserve, bytes, ledger.own());
            reserved.map_err(|error| error.to_string())
        };
        let (taken, free) = (reserve(there.total.saturating_sub(there.free))?, reserve(left_free)?);
        Ok(Self { ledger: Arc::clone(ledger), taken, free, left_free })
    }

    /// Has the books say what is taken besides what is planned.
    pub fn reconcile(&mut self, hardware: &dyn Hardware) {
        // Jobs come and go meanwhile: what was planned before or after is not what nobody planned.
        let before = self.planned();
        let Some(there) = hardware.memory() else { return };
        let planned = before.max(self.planned());
        let outside = there.total.saturating_sub(there.free).saturating_sub(there.pool_reserved);
        let besides = outside.saturating_add(there.pool_used.saturating_sub(planned));
        let mut fits = self.taken.resize(besides).is_ok();
        if !fits {
            // To shrink never fails.
            let _ = self.free.resize(0);
            fits = self.taken.resize(besides).is_ok();
        }
        if !fits {
            // All that is left: nobody gets any of it until what is there is what was planned.
            let _ = self.taken.resize(self.taken.bytes().saturating_add(self.left()));
            let device = &**self.ledger.device();
            tracing::warn!(device, besides, "more of the device's memory is in use than was planned");
        }
        let most = self.free.bytes().saturating_add(self.left());
        let _ = self.free.resize(self.left_free.min(most));
    }

    fn planned(&self) -> u64 {
        self.ledger
            .snapshot()
            .accounts
            .iter()
            .fold(0, |sum, account| sum.saturating_add(account.weights).saturating_add(account.activations))
    }

    /// Bytes that nobody has in the books.
    fn left(&self) -> u64 {
        let books = self.ledger.snapshot();
        books.capacity.saturating_sub(books.used)
    }
}
