//! Which graphs are in memory, and who holds them there.
//!
//! A graph is loaded once however many callers ask for it: the first one starts the load, the others wait for the
//! same one, and all get its result. It stays while anyone holds a [`Lease`] on it and is dropped with the last
//! one. A failed load is forgotten as soon as its waiters have heard of it, so that the next caller tries anew.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use crate::Error;
use crate::backend::{Graph, MAX_PLANS, Shapes};
use crate::model::{ModelSource, Signature};
use crate::quota::{Memory, Reserved};

/// Graphs are per tenant: two tenants with the same bytes share nothing, so that neither can tell by timing
/// whether the other has them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub tenant: Arc<str>,
    pub digest: Arc<str>,
}

type Load = Shared<BoxFuture<'static, Result<Arc<Resident>, Error>>>;

/// Shapes that a graph remembers having been examined for.
const MAX_EXAMINED: usize = 1024;

/// A model in memory, and what is known about preparing it for more shapes.
pub(crate) struct Resident {
    pub graph: Box<dyn Graph>,
    /// Where it came from, to examine it for shapes that it has not been examined for.
    pub model: ModelSource,
    /// The oldest first.
    examined: Mutex<VecDeque<Shapes>>,
    /// What it takes of the device's memory: once when it is loaded, and once more for each plan that it keeps, up to so
    /// many.
    reserved: Mutex<Vec<Reserved>>,
    /// Bytes of one of these.
    pub memory: u64,
    /// Held by the one that prepares the graph for a shape: others who wait for the same shape find it done.
    pub preparing: Arc<tokio::sync::Mutex<()>>,
}

impl Resident {
    /// A graph that was loaded with `reserved` for it, which is `memory` bytes.
    pub fn new(graph: Box<dyn Graph>, model: ModelSource, memory: u64, reserved: Reserved) -> Self {
        // The examination before the load looked at these.
        let examined = Mutex::new(VecDeque::from([graph.single()]));
        let reserved = Mutex::new(vec![reserved]);
        Self { graph, model, examined, reserved, memory, preparing: Arc::default() }
    }

    /// Takes memory for one more plan, unless the graph has it for as many as it keeps.
    pub fn reserve(&self, memory: &Arc<Memory>) -> Result<(), Error> {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        if reserved.len() <= MAX_PLANS {
            reserved.push(memory.reserve(self.memory)?);
        }
        Ok(())
    }

    /// Whether preparing the graph for these shapes can do what no examination has seen.
    pub fn needs_examination(&self, shapes: &Shapes) -> bool {
        self.graph.made_per_shape()
            && !self.examined.lock().unwrap_or_else(PoisonError::into_inner).contains(shapes)
    }

    pub fn remember_examined(&self, shapes: Shapes) {
        let mut examined = self.examined.lock().unwrap_or_else(PoisonError::into_inner);
        if examined.len() >= MAX_EXAMINED {
            examined.pop_front();
        }
        examined.push_back(shapes);
    }
}

struct Slot {
    load: Load,
    leases: usize,
}

#[derive(Default)]
pub(crate) struct Residency {
    slots: DashMap<Key, Slot>,
    pub loads: AtomicU64,
    pub unloads: AtomicU64,
    pub failed_loads: AtomicU64,
}

/// Holds a graph in memory. Dropping the last lease of a graph unloads it.
pub struct Lease {
    resident: Arc<Resident>,
    claim: Claim,
    load_time: Option<Duration>,
}

/// A place in a slot's count, given back on drop.
struct Claim {
    residency: Arc<Residency>,
    key: Key,
}

/// A graph that is in memory.
#[derive(Debug, Clone)]
pub struct ResidentGraph {
    pub tenant: Arc<str>,
    pub digest: Arc<str>,
    /// How many hold it.
    pub leases: usize,
}

impl Residency {
    /// A lease on `key`'s graph; `load` is called only if nobody has asked for it yet.
    pub async fn lease(
        self: &Arc<Self>,
        key: Key,
        load: impl FnOnce() -> BoxFuture<'static, Result<Resident, Error>>,
    ) -> Result<Lease, Error> {
        let mut started = None;
        let (claim, load) = {
            let mut slot = self.slots.entry(key.clone()).or_insert_with(|| {
                started = Some(Instant::now());
                let residency = Arc::clone(self);
                let load = load().map(move |result| {
                    let counter = if result.is_ok() { &residency.loads } else { &residency.failed_loads };
                    counter.fetch_add(1, Ordering::Relaxed);
                    result.map(Arc::new)
                });
                Slot { load: load.boxed().shared(), leases: 0 }
            });
            slot.leases += 1;
            (Claim { residency: Arc::clone(self), key }, slot.load.clone())
        };
        let resident = load.await?;
        Ok(Lease { resident, claim, load_time: started.map(|started| started.elapsed()) })
    }

    pub fn resident(&self) -> Vec<ResidentGraph> {
        self.slots
            .iter()
            .filter(|slot| matches!(slot.load.peek(), Some(Ok(_))))
            .map(|slot| ResidentGraph {
                tenant: Arc::clone(&slot.key().tenant),
                digest: Arc::clone(&slot.key().digest),
                leases: slot.leases,
            })
            .collect()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Entry::Occupied(mut slot) = self.residency.slots.entry(self.key.clone()) else { return };
        slot.get_mut().leases -= 1;
        if slot.get().leases == 0 {
            let slot = slot.remove();
            if matches!(slot.load.peek(), Some(Ok(_))) {
                self.residency.unloads.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Lease {
    pub fn signature(&self) -> &Signature {
        self.resident.graph.signature()
    }

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

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("digest", &self.claim.key.digest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    use crate::backend::Plan;
    use crate::model::Format;
    use crate::tensor::Tensor;

    struct Empty(Signature);

    impl Graph for Empty {
        fn signature(&self) -> &Signature {
            &self.0
        }

        fn ready(&self, _: &[Tensor]) -> Result<Option<Arc<dyn Plan>>, Error> {
            Ok(None)
        }

        fn prepare(&self, _: Shapes) -> Result<Arc<dyn Plan>, Error> {
            Err(Error::Cancelled)
        }

        fn made_per_shape(&self) -> bool {
            false
        }

        fn single(&self) -> Shapes {
            Vec::new()
        }
    }

    fn key() -> Key {
        Key { tenant: "t".into(), digest: "d".into() }
    }

    fn empty() -> Result<Resident, Error> {
        let graph = Empty(Signature { inputs: vec![], outputs: vec![] });
        let model = ModelSource::from_memory("d", Format::Onnx, Bytes::new());
        Ok(Resident::new(Box::new(graph), model, 0, Memory::new(0).reserve(0)?))
    }

    #[tokio::test]
    async fn many_callers_one_load_and_the_last_lease_unloads() {
        let residency = Arc::new(Residency::default());
        let (open, gate) = tokio::sync::oneshot::channel::<()>();
        let gate = gate.map(|_| empty()).boxed();
        let mut gate = Some(gate);
        let mut callers = Vec::new();
        for _ in 0..100 {
            let gate = gate.take();
            let mut caller =
                Box::pin(residency.lease(key(), move || gate.expect("only the first caller loads")));
            assert!(caller.as_mut().now_or_never().is_none());
            callers.push(caller);
        }
        open.send(()).unwrap();
        let mut leases = Vec::new();
        for caller in callers {
            leases.push(caller.await.unwrap());
        }
        assert_eq!(residency.loads.load(Ordering::Relaxed), 1);
        assert_eq!(residency.resident()[0].leases, 100);
        let loaders = leases.iter().filter(|lease| lease.load_time().is_some()).count();
        assert_eq!(loaders, 1, "one load has one time");
        drop(leases);
        assert!(residency.resident().is_empty());
        assert_eq!(residency.unloads.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_failed_load_is_told_to_all_who_wait_and_then_forgotten() {
        let residency = Arc::new(Residency::default());
        let failure = Error::InvalidModel("no".to_owned());
        let (open, gate) = tokio::sync::oneshot::channel::<()>();
        let told = failure.clone();
        let mut first = Box::pin(residency.lease(key(), || gate.map(|_| Err(told)).boxed()));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = Box::pin(residency.lease(key(), || panic!("it waits for the first one's load")));
        assert!(second.as_mut().now_or_never().is_none());
        open.send(()).unwrap();
        let (first, second) = futures::join!(first, second);
        assert_eq!(first.err(), Some(failure.clone()));
        assert_eq!(second.err(), Some(failure));
        let third = residency.lease(key(), || futures::future::ready(empty()).boxed()).await;
        assert!(third.is_ok());
    }
}
