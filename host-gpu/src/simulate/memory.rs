//! The graphs in a simulated device's memory. What makes room is chosen by the real choice; what is here is when it is
//! asked, as in `residency.rs`: a graph is loaded once for all who wait for it, stays while requests hold it, and is idle
//! after that for as long as its model says, unless others need its bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Device, Model, Refusal};
use crate::error::nanos;
use crate::residency::eviction::{Candidate, Uses, choose};
use crate::sched::fair::GraphId;

/// Whose account public models are on.
const SYSTEM: &str = "system";

/// A model of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub owner: Arc<str>,
    pub model: Arc<str>,
}

impl Key {
    pub fn of(tenant: &Arc<str>, name: &Arc<str>, model: &Model) -> Self {
        let owner = if model.policy.public { SYSTEM.into() } else { Arc::clone(tenant) };
        Self { owner, model: Arc::clone(name) }
    }
}

/// A request's hold on a graph.
pub(super) struct Lease {
    pub graph: GraphId,
    pub load: Load,
}

/// How far a graph's load is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    Begins,
    UnderWay,
    Done,
}

struct Graph {
    key: Key,
    model: Model,
    uses: Uses,
    leases: usize,
    idle_since: Option<u64>,
    /// When it was loaded; not yet when absent.
    loaded: Option<u64>,
    /// Requests that wait for it.
    waiting: Vec<u64>,
}

pub(super) struct Memory {
    device: Device,
    /// By number, as they came: the order must be the same each time.
    graphs: BTreeMap<GraphId, Graph>,
    names: HashMap<Key, GraphId>,
    used: u64,
    ids: GraphId,
    /// The moment 0. Which one it is makes no difference, as only differences are used.
    origin: Instant,
}

impl Memory {
    pub fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            graphs: BTreeMap::new(),
            names: HashMap::new(),
            used: 0,
            ids: 0,
            origin: Instant::now(),
        }
    }

    /// A lease for `request` on a model's graph. Graphs that had to make room are added to `evicted`.
    ///
    /// # Errors
    /// It does not fit, and what is idle is not enough to make room.
    pub fn lease(
        &mut self,
        (key, model, request): (&Key, &Model, u64),
        quota: Option<u64>,
        now: u64,
        evicted: &mut Vec<Key>,
    ) -> Result<Lease, Refusal> {
        let at = self.at(now);
        let id = self.names.get(key).copied();
        if let Some((graph, there)) = id.and_then(|id| self.graphs.get_mut(&id).map(|there| (id, there))) {
            there.leases += 1;
            there.uses.add(at);
            there.idle_since = None;
            if there.loaded.is_some() {
                return Ok(Lease { graph, load: Load::Done });
            }
            there.waiting.push(request);
            return Ok(Lease { graph, load: Load::UnderWay });
        }
        self.make_room(key, model.bytes, quota, now, evicted)?;
        self.ids += 1;
        self.used = self.used.saturating_add(model.bytes);
        let mut uses = Uses::none(at);
        uses.add(at);
        let (key, model) = (key.clone(), model.clone());
        self.names.insert(key.clone(), self.ids);
        let graph =
            Graph { key, model, uses, leases: 1, idle_since: None, loaded: None, waiting: vec![request] };
        self.graphs.insert(self.ids, graph);
        Ok(Lease { graph: self.ids, load: Load::Begins })
    }

    /// A graph is loaded: the requests that waited for it, by arrival. None if all have left it.
    pub fn loaded(&mut self, id: GraphId, now: u64) -> Vec<u64> {
        let Some(graph) = self.graphs.get_mut(&id) else { return Vec::new() };
        graph.loaded = Some(now);
        std::mem::take(&mut graph.waiting)
    }

    /// A request does not wait for a load any more. Its lease is still to be released.
    pub fn leave(&mut self, id: GraphId, request: u64) {
        if let Some(graph) = self.graphs.get_mut(&id) {
            graph.waiting.retain(|other| *other != request);
        }
    }

    /// Gives a lease back. Returns when the graph's time is over, if it is idle now and that comes by itself.
    pub fn release(&mut self, id: GraphId, now: u64) -> Option<u64> {
        let graph = self.graphs.get_mut(&id)?;
        graph.leases = graph.leases.saturating_sub(1);
        if graph.leases > 0 {
            return None;
        }
        graph.idle_since = Some(now);
        graph.end()
    }

    /// Drops a graph if its time is over. Returns whose it was, if it was loaded.
    pub fn expire(&mut self, id: GraphId, now: u64) -> Option<Key> {
        let graph = self.graphs.get(&id)?;
        if graph.end().is_none_or(|end| end > now) {
            return None;
        }
        let loaded = graph.loaded.is_some();
        self.drop(id).filter(|_| loaded)
    }

    /// Room for `bytes` of this owner: first under its quota, where only its own graphs go, then on the device.
    fn make_room(
        &mut self,
        key: &Key,
        bytes: u64,
        quota: Option<u64>,
        now: u64,
        evicted: &mut Vec<Key>,
    ) -> Result<(), Refusal> {
        if let Some(quota) = quota {
            let mine = self.graphs.values().filter(|graph| graph.key.owner == key.owner);
            let used = mine.map(|graph| graph.model.bytes).fold(0, u64::saturating_add);
            let missing = used.saturating_add(bytes).saturating_sub(quota);
            self.evict(|owner| *owner == key.owner, missing, now, evicted).ok_or(Refusal::TenantMemory)?;
        }
        let missing = self.used.saturating_add(bytes).saturating_sub(self.device.memory);
        self.evict(|_| true, missing, now, evicted).ok_or(Refusal::DeviceMemory)
    }

    /// Has idle graphs go for `bytes`; none if they are not enough.
    fn evict(
        &mut self,
        wanted: impl Fn(&Arc<str>) -> bool,
        bytes: u64,
        now: u64,
        evicted: &mut Vec<Key>,
    ) -> Option<()> {
        if bytes == 0 {
            return Some(());
        }
        let idle = self.graphs.iter().filter(|(_, graph)| wanted(&graph.key.owner));
        let idle = idle.filter_map(|(id, graph)| self.candidate(*id, graph, now)).collect();
        let chosen = choose(self.device.eviction, idle, bytes, self.at(now));
        if chosen.is_empty() {
            return None;
        }
        evicted.extend(chosen.into_iter().filter_map(|candidate| self.drop(candidate.key)));
        Some(())
    }

    fn candidate(&self, id: GraphId, graph: &Graph, now: u64) -> Option<Candidate<GraphId>> {
        let (idle_since, loaded) = (graph.idle_since?, graph.loaded?);
        let keep = graph.model.policy.keep;
        let stays = keep.pin || now.saturating_sub(loaded) < nanos(keep.min_resident);
        (!stays && graph.model.bytes > 0).then(|| Candidate {
            key: id,
            bytes: graph.model.bytes,
            load_time: graph.model.load_time,
            uses: graph.uses,
            idle_since: self.at(idle_since),
        })
    }

    fn drop(&mut self, id: GraphId) -> Option<Key> {
        let Graph { key, model, .. } = self.graphs.remove(&id)?;
        self.names.remove(&key);
        self.used = self.used.saturating_sub(model.bytes);
        Some(key)
    }

    fn at(&self, nanos: u64) -> Instant {
        self.origin.checked_add(Duration::from_nanos(nanos)).unwrap_or(self.origin)
    }
}

impl Graph {
    /// When it goes by itself, if it is idle. What nobody waits for to be loaded goes at once.
    fn end(&self) -> Option<u64> {
        let idle_since = self.idle_since?;
        let keep = self.model.policy.keep;
        match self.loaded {
            None => Some(idle_since),
            Some(_) if keep.pin => None,
            Some(_) => Some(idle_since.saturating_add(nanos(keep.keep_alive))),
        }
    }
}
