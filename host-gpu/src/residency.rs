//! Which graphs are in a device's memory, and who holds them there.
//!
//! A graph is loaded once however many callers ask for it: the first one starts the load, the others wait for the
//! same one, and all get its result. A failed load is told to those who wait for it and forgotten, so that the next
//! caller tries anew.
//!
//! Whoever needs a graph to be there has a [`Hold`] on it: a held graph is never taken away. With its last lease it is
//! idle, and its [`Keep`] says what becomes of it: it goes at once, or stays for a while, or for good. Idle graphs
//! are what the device's memory is lent to: when bytes are wanted that are not there, the ones that are worth the
//! least make room ([`Eviction`]), and for a tenant at its quota only its own do.
//!
//! One lock over all slots, held for a look-up, or for a pass over them when room is made. Nothing is loaded or
//! dropped under it. A graph's bytes stay in the [`Ledger`] for as long as anything holds the graph, which may be
//! longer than it is listed here. Nobody waits for others' leases to end: whoever finds no room, and nothing idle to
//! make it, is refused.

pub(crate) mod eviction;
mod resident;
mod stay;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::Error;
use crate::quota::{Kind, Ledger, Reserved};
use crate::tab::Tab;

pub use eviction::Eviction;
use eviction::{Candidate, Uses, choose};
pub(crate) use resident::{Form, Resident};
pub use stay::Held;
use stay::{Stay, Stays};

/// Graphs are per owner: two tenants with the same bytes share nothing, so that neither can tell by timing whether
/// the other has them. A public model is held once for all, for [`SYSTEM`](crate::quota::SYSTEM).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub owner: Arc<str>,
    pub digest: Arc<str>,
    pub tier: Tier,
}

/// What a model is in memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// To run on this memory's device.
    Device,
    /// To be put on a device that has memory of its own, without being read again.
    Host,
}

/// What becomes of a graph that nobody holds. By default it goes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    /// How long it stays after its last lease.
    pub keep_alive: Duration,
    /// It stays for good, and makes room for nobody.
    pub pin: bool,
    /// How long it is in memory, at least, before it makes room for others.
    pub min_resident: Duration,
}

/// A graph that came out whole.
#[derive(Clone)]
struct Loaded {
    resident: Arc<Resident>,
    at: Instant,
    took: Duration,
}

type Load = Shared<BoxFuture<'static, Result<Loaded, Error>>>;

struct Slot {
    /// Tells it from those that had its key before.
    id: u64,
    load: Load,
    leases: usize,
    /// The newest that came with a lease.
    keep: Keep,
    uses: Uses,
    idle_since: Option<Instant>,
    timer: Option<Timer>,
    /// Where a timer can run: the last lease may drop on a thread that knows no runtime.
    runtime: Option<Handle>,
}

impl Slot {
    fn loaded(&self) -> Option<&Loaded> {
        self.load.peek().and_then(|load| load.as_ref().ok())
    }

    /// When its time is over, if it is idle and that comes by itself. What nobody waits for to be loaded is over now.
    fn end(&self) -> Option<Instant> {
        let idle_since = self.idle_since?;
        match self.loaded() {
            None => Some(idle_since),
            Some(_) if self.keep.pin => None,
            Some(_) => idle_since.checked_add(self.keep.keep_alive),
        }
    }

    fn has_failed(&self) -> bool {
        matches!(self.load.peek(), Some(Err(_)))
    }

    /// As a candidate for eviction, if it is one. What a job still holds after its lease brings nothing back now.
    fn candidate(&self, key: &Key, now: Instant) -> Option<Candidate<Key>> {
        let (idle_since, loaded) = (self.idle_since?, self.loaded()?);
        let stays = self.keep.pin || now.saturating_duration_since(loaded.at) < self.keep.min_resident;
        if stays || Arc::strong_count(&loaded.resident) > 1 {
            return None;
        }
        let bytes = loaded.resident.bytes();
        (bytes > 0).then(|| Candidate {
            key: key.clone(),
            bytes,
            load_time: loaded.took,
            uses: self.uses,
            idle_since,
        })
    }
}

/// The task that looks after a slot when its time is over. Ends with the slot.
struct Timer {
    at: Instant,
    task: AbortHandle,
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Slots = BTreeMap<Key, Slot>;

/// The graphs in the memory of one device.
pub(crate) struct Residency {
    ledger: Arc<Ledger>,
    eviction: Eviction,
    slots: Mutex<Slots>,
    /// Those that have been and are in memory, until what they had is told.
    stays: Stays,
    /// Held by the one that makes room, so that two do not both drop graphs for the same bytes, and so that one that
    /// finds no idle graph left waits for those that are just being dropped.
    making_room: Mutex<()>,
    ids: AtomicU64,
    pub loads: AtomicU64,
    pub failed_loads: AtomicU64,
    /// Leases on graphs that were there or on their way.
    pub hits: AtomicU64,
    /// Graphs that went with their last lease or some time after it.
    pub unloads: AtomicU64,
    /// Graphs that went to make room.
    pub evictions: AtomicU64,
}

/// Keeps a graph in memory. Its [`Keep`] says what becomes of it after its last lease.
pub(crate) struct Hold {
    resident: Arc<Resident>,
    claim: Claim,
    load_time: Option<Duration>,
}

/// A place in a slot's count, given back on drop.
struct Claim {
    residency: Arc<Residency>,
    key: Key,
    slot: u64,
}

/// A graph that is in memory.
#[derive(Debug, Clone)]
pub struct ResidentGraph {
    /// The device in whose memory it is.
    pub device: Arc<str>,
    pub owner: Arc<str>,
    pub digest: Arc<str>,
    /// Whether it only waits in host memory to be put on a device.
    pub waits: bool,
    /// How many hold it.
    pub leases: usize,
    /// Bytes of the device's memory.
    pub bytes: u64,
    /// How long nobody has held it; absent while someone does.
    pub idle: Option<Duration>,
    pub pinned: bool,
    /// Operators that run on the CPU because the device has none of them.
    pub host_operators: Vec<String>,
}

impl Residency {
    pub fn new(ledger: Arc<Ledger>, eviction: Eviction) -> Arc<Self> {
        Arc::new(Self {
            ledger,
            eviction,
            slots: Mutex::default(),
            stays: Stays::default(),
            making_room: Mutex::default(),
            ids: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            failed_loads: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            unloads: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        })
    }

    /// A lease on `key`'s graph, which from now on is kept as `keep` says. `load` is called only if the graph is
    /// neither there nor on its way; what it does before its first await, it does under the lock.
    ///
    /// # Errors
    /// What the load ended in.
    pub async fn lease(
        self: &Arc<Self>,
        key: Key,
        keep: Keep,
        load: impl FnOnce() -> BoxFuture<'static, Result<Resident, Error>>,
    ) -> Result<Hold, Error> {
        let (claim, load, first) = self.claim(key, keep, load);
        let Loaded { resident, took, .. } = load.await?;
        Ok(Hold { resident, claim, load_time: first.then_some(took) })
    }

    /// A place in the slot of `key`, the slot's load, and whether that has only been made.
    fn claim(
        self: &Arc<Self>,
        key: Key,
        keep: Keep,
        load: impl FnOnce() -> BoxFuture<'static, Result<Resident, Error>>,
    ) -> (Claim, Load, bool) {
        let now = Instant::now();
        let mut slots = self.lock();
        if slots.get(&key).is_some_and(Slot::has_failed) {
            slots.remove(&key);
        }
        let mut first = false;
        let slot = slots.entry(key.clone()).or_insert_with(|| {
            first = true;
            Slot {
                id: self.ids.fetch_add(1, Ordering::Relaxed),
                load: self.load(load(), now),
                leases: 0,
                keep,
                uses: Uses::none(now),
                idle_since: None,
                timer: None,
                runtime: Handle::try_current().ok(),
            }
        });
        if !first {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        slot.leases = slot.leases.saturating_add(1);
        slot.keep = keep;
        slot.uses.add(now);
        slot.idle_since = None;
        (Claim { residency: Arc::clone(self), key, slot: slot.id }, slot.load.clone(), first)
    }

    /// A load that is counted and timed.
    fn load(self: &Arc<Self>, load: BoxFuture<'static, Result<Resident, Error>>, started: Instant) -> Load {
        let residency = Arc::clone(self);
        let load = load.map(move |result| {
            let counter = if result.is_ok() { &residency.loads } else { &residency.failed_loads };
            counter.fetch_add(1, Ordering::Relaxed);
            let at = Instant::now();
            result.map(|resident| Loaded { resident: Arc::new(resident), at, took: at - started })
        });
        load.boxed().shared()
    }

    /// Takes bytes of the device on an owner's account, and drops idle graphs if that is what it takes: anyone's when
    /// the device is full, the owner's own when its quota is used up. Blocks while it drops them.
    ///
    /// # Errors
    /// As [`Ledger::reserve`]. Idle graphs that would not have been enough are still there then.
    pub fn reserve(
        &self,
        owner: &Arc<str>,
        kind: Kind,
        bytes: u64,
        tab: &Arc<Tab>,
    ) -> Result<Reserved, Error> {
        self.making_room(owner, || self.ledger.reserve(owner, kind, bytes, tab))
    }

    /// Makes what is reserved `bytes` in all, with the same means.
    ///
    /// # Errors
    /// As [`Residency::reserve`]; it is then what it was.
    pub fn resize(&self, reserved: &mut Reserved, bytes: u64) -> Result<(), Error> {
        let owner = Arc::clone(reserved.tenant());
        self.making_room(&owner, || reserved.resize(bytes))
    }

    fn making_room<T>(
        &self,
        owner: &Arc<str>,
        mut attempt: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Ok(done) = attempt() {
            return Ok(done);
        }
        let _turn = self.making_room.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |requested: u64, used: u64, limit| used.saturating_add(requested).saturating_sub(limit);
        loop {
            let error = match attempt() {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let freed = match &error {
                Error::TenantMemory { requested, used, limit, .. } => {
                    self.make_room(|key| key.owner == *owner, missing(*requested, *used, *limit))
                }
                Error::DeviceMemory { requested, used, limit } => {
                    self.make_room(|_| true, missing(*requested, *used, *limit))
                }
                _ => 0,
            };
            if freed == 0 {
                return Err(error);
            }
        }
    }

    /// Drops idle graphs whose keys are `wanted` until `bytes` have come back: those that are worth the least first,
    /// and none that is pinned or younger than its `min_resident`. If all of them would not be enough, none is
    /// dropped. Returns the bytes that came back.
    pub fn make_room(&self, wanted: impl Fn(&Key) -> bool, bytes: u64) -> u64 {
        let now = Instant::now();
        let going: Vec<(u64, Slot)> = {
            let mut slots = self.lock();
            let idle = slots.iter().filter(|(key, _)| wanted(key));
            let idle = idle.filter_map(|(key, slot)| slot.candidate(key, now)).collect();
            let chosen = choose(self.eviction, idle, bytes, now).into_iter();
            chosen.filter_map(|chosen| Some((chosen.bytes, slots.remove(&chosen.key)?))).collect()
        };
        going.into_iter().fold(0, |freed: u64, (bytes, slot)| {
            drop(slot);
            self.evictions.fetch_add(1, Ordering::Relaxed);
            freed.saturating_add(bytes)
        })
    }

    /// Something of a model is about to be in memory.
    pub fn stay(&self, owner: &Arc<str>, digest: &Arc<str>) -> Arc<Stay> {
        self.stays.begin(owner, digest)
    }

    /// What has been held of the device's memory, for how long, since this was last asked: by graphs, and by nobody's requests.
    /// What requests held is on their own tabs.
    pub fn take_held(&self) -> Vec<Held> {
        self.stays.take(&self.ledger)
    }

    /// Has a graph kept in another way from now on, if it is there: at once, if nobody holds it.
    pub fn set_keep(self: &Arc<Self>, key: &Key, keep: Keep) {
        self.settle(key, None, |slot| slot.keep = keep);
    }

    /// The graphs in memory, in the order of their keys.
    pub fn resident(&self) -> Vec<ResidentGraph> {
        let now = Instant::now();
        let slots = self.lock();
        let loaded = slots.iter().filter_map(|(key, slot)| Some((key, slot, slot.loaded()?)));
        loaded
            .map(|(key, slot, loaded)| ResidentGraph {
                device: Arc::clone(self.ledger.device()),
                waits: key.tier == Tier::Host,
                owner: Arc::clone(&key.owner),
                digest: Arc::clone(&key.digest),
                leases: slot.leases,
                bytes: loaded.resident.bytes(),
                idle: slot.idle_since.map(|since| now.saturating_duration_since(since)),
                pinned: slot.keep.pin,
                host_operators: loaded
                    .resident
                    .graph()
                    .map(|graph| graph.host_operators())
                    .unwrap_or_default(),
            })
            .collect()
    }

    /// Changes the slot of `key`, if it is still the one meant, and does what follows from that if nobody holds it:
    /// it goes, or its timer is set.
    fn settle(self: &Arc<Self>, key: &Key, id: Option<u64>, change: impl FnOnce(&mut Slot)) {
        let mut slots = self.lock();
        let Entry::Occupied(mut entry) = slots.entry(key.clone()) else { return };
        let slot = entry.get_mut();
        if id.is_some_and(|id| id != slot.id) {
            return;
        }
        change(slot);
        let Some(end) = slot.end() else { return };
        match &slot.runtime {
            Some(runtime) if end > Instant::now() => {
                if slot.timer.as_ref().is_none_or(|timer| timer.at > end) {
                    slot.timer = Some(self.timer(runtime, key.clone(), slot.id, end));
                }
            }
            _ => {
                let slot = entry.remove();
                drop(slots);
                if slot.loaded().is_some() {
                    self.unloads.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn timer(self: &Arc<Self>, runtime: &Handle, key: Key, id: u64, at: Instant) -> Timer {
        let residency = Arc::downgrade(self);
        let task = runtime.spawn(async move {
            sleep_until(at).await;
            if let Some(residency) = residency.upgrade() {
                residency.settle(&key, Some(id), |slot| slot.timer = None);
            }
        });
        Timer { at, task: task.abort_handle() }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.residency.settle(&self.key, Some(self.slot), |slot| {
            slot.leases = slot.leases.saturating_sub(1);
            if slot.leases == 0 {
                slot.idle_since = Some(Instant::now());
            }
        });
    }
}

impl Hold {
    /// The model's digest.
    pub fn digest(&self) -> &str {
        &self.claim.key.digest
    }

    /// How long the graph took to load, if it was loaded for this lease and not for an earlier one.
    pub fn load_time(&self) -> Option<Duration> {
        self.load_time
    }

    pub(crate) fn resident(&self) -> &Arc<Resident> {
        &self.resident
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("digest", &self.claim.key.digest).finish_non_exhaustive()
    }
}
