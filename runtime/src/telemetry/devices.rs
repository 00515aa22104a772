//! What the devices count themselves.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use weir_gpu::{Cost, DeviceStats, Stats};

use super::cardinality::Cardinality;
use super::count::{Histogram, INNER_BOUNDS};
use super::names;
use super::snapshot::{Sample, Snapshot, seconds};
use crate::config::MetricsConfig;

/// Histograms of a device: of waiting for a lane, and of holding one.
type Times = Arc<[Histogram; 2]>;

/// What is counted by device.
#[derive(Debug, Default)]
pub struct Devices {
    /// Waiting for a lane, and holding one. A machine has few devices.
    times: RwLock<Vec<(Arc<str>, Times)>>,
    tenants: Mutex<Time>,
}

/// Nanoseconds that tenants' jobs held lanes.
#[derive(Debug, Default)]
struct Time {
    /// As it was last told, by device and tenant.
    told: HashMap<(String, Arc<str>), u64>,
    /// By device and the tenant's label. A tenant that gets or loses its label moves none of it.
    shown: BTreeMap<(String, Arc<str>), u64>,
}

impl Devices {
    /// An inference on a device.
    pub fn inference(&self, device: &str, cost: &Cost) {
        let times = self.times(device);
        let [queue, held] = &*times;
        queue.observe(cost.queued);
        held.observe(cost.device());
    }

    fn times(&self, device: &str) -> Times {
        let find = |times: &[(Arc<str>, Times)]| {
            times.iter().find(|(name, _)| **name == *device).map(|(_, times)| Arc::clone(times))
        };
        if let Some(found) = find(&self.times.read().unwrap_or_else(PoisonError::into_inner)) {
            return found;
        }
        let mut times = self.times.write().unwrap_or_else(PoisonError::into_inner);
        find(&times).unwrap_or_else(|| {
            let new = Arc::new([Histogram::new(INNER_BOUNDS), Histogram::new(INNER_BOUNDS)]);
            times.push((device.into(), Arc::clone(&new)));
            new
        })
    }

    /// Adds what the devices count and have.
    pub fn add(
        &self,
        snapshot: &mut Snapshot,
        stats: &Stats,
        cardinality: &Cardinality,
        most: MetricsConfig,
    ) {
        let inferences = [("answered", stats.inferences), ("failed", stats.failed_inferences)];
        snapshot.add(&names::INFERENCES, inferences.map(|(outcome, count)| Sample::new([outcome], count)));
        let times: Vec<_> = stats.devices.iter().map(|it| (&*it.name, self.times(&it.name))).collect();
        let of = |which: fn(&[Histogram; 2]) -> &Histogram| {
            let sample = move |(name, times): &(&str, Times)| Sample::new([*name], which(times).get());
            times.iter().map(sample).collect::<Vec<_>>()
        };
        snapshot.add(&names::QUEUE_SECONDS, of(|[queue, _]| queue));
        snapshot.add(&names::DEVICE_SECONDS, of(|[_, held]| held));
        snapshot.one(&names::OPERATORS, stats.operators);
        snapshot.one(&names::BATCHES, stats.batches);
        snapshot.one(&names::BATCHED_REQUESTS, stats.batched);
        let by_device = |value: fn(&DeviceStats) -> u64| {
            stats.devices.iter().map(move |device| Sample::new([&*device.name], value(device)))
        };
        snapshot.add(&names::LANES, by_device(|it| it.lanes as u64));
        snapshot.add(&names::BUSY_LANES, by_device(|it| it.busy as u64));
        snapshot.add(&names::QUEUED_JOBS, by_device(|it| it.queued as u64));
        snapshot.add(&names::SUSPENDED_JOBS, by_device(|it| it.suspended as u64));
        snapshot.add(&names::SUSPENSIONS, by_device(|it| it.suspensions));
        snapshot.add(&names::DEVICE_FAILED, by_device(|it| it.failed.into()));
        snapshot.add(&names::DEVICE_MEMORY_BYTES, by_device(|it| it.memory.used));
        snapshot.add(&names::MAX_DEVICE_MEMORY_BYTES, by_device(|it| it.memory.capacity));
        snapshot.add(&names::DRIVER_MEMORY_BYTES, stats.devices.iter().flat_map(driver));
        let graphs = |waits: bool| {
            stats.devices.iter().map(move |device| {
                let is_it =
                    |graph: &&weir_gpu::ResidentGraph| graph.waits == waits && *graph.device == *device.name;
                Sample::new([&*device.name], stats.resident.iter().filter(is_it).count())
            })
        };
        snapshot.add(&names::RESIDENT_GRAPHS, graphs(false));
        snapshot.add(&names::WAITING_GRAPHS, graphs(true));
        snapshot.one(&names::GRAPH_LOADS, stats.loads);
        snapshot.one(&names::FAILED_GRAPH_LOADS, stats.failed_loads);
        snapshot.one(&names::GRAPH_HITS, stats.hits);
        snapshot.one(&names::GRAPH_UNLOADS, stats.unloads);
        snapshot.one(&names::GRAPH_EVICTIONS, stats.evictions);
        self.by_tenant(snapshot, stats, &|tenant| cardinality.label(tenant, most));
    }

    fn by_tenant(&self, snapshot: &mut Snapshot, stats: &Stats, label: &dyn Fn(&Arc<str>) -> Arc<str>) {
        let mut time = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        time.add(&stats.devices, label);
        let shown = time.shown.iter().map(|((device, label), nanos)| {
            Sample::new([device.as_str().into(), Arc::clone(label)], seconds(*nanos))
        });
        snapshot.add(&names::TENANT_DEVICE_SECONDS, shown);
        drop(time);

        let (mut memory, mut quotas, mut queued) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for device in &stats.devices {
            let name: Arc<str> = device.name.as_str().into();
            for account in &device.memory.accounts {
                let tenant = label(&account.tenant);
                let kinds = [
                    ("weights", account.weights),
                    ("activations", account.activations),
                    ("reserve", account.reserve),
                ];
                for (kind, bytes) in kinds {
                    let labels = [Arc::clone(&name), Arc::clone(&tenant), kind.into()];
                    add(memory.entry(labels).or_default(), bytes);
                }
                // Quotas of several say nothing together.
                if let Some(quota) = account.quota.filter(|_| tenant == account.tenant) {
                    quotas.insert([Arc::clone(&name), tenant], quota);
                }
            }
            for (tenant, requests) in &device.queued_by {
                add(queued.entry([Arc::clone(&name), label(tenant)]).or_default(), *requests as u64);
            }
        }
        snapshot
            .add(&names::TENANT_MEMORY_BYTES, memory.into_iter().map(|(labels, it)| Sample::new(labels, it)));
        snapshot.add(
            &names::MAX_TENANT_MEMORY_BYTES,
            quotas.into_iter().map(|(labels, it)| Sample::new(labels, it)),
        );
        snapshot
            .add(&names::TENANT_QUEUED_JOBS, queued.into_iter().map(|(labels, it)| Sample::new(labels, it)));
    }
}

impl Time {
    /// Takes over what has come since the last time.
    fn add(&mut self, devices: &[DeviceStats], label: &dyn Fn(&Arc<str>) -> Arc<str>) {
        let (mut told, mut labels) = (HashMap::new(), HashSet::new());
        for device in devices {
            for (tenant, nanos) in &device.device_time {
                let key = (device.name.clone(), Arc::clone(tenant));
                let before = self.told.get(&key).copied().unwrap_or_default();
                // What the device has forgotten begins at zero again.
                let more = nanos.checked_sub(before).unwrap_or(*nanos);
                told.insert(key, *nanos);
                if more > 0 || self.shown.contains_key(&(device.name.clone(), Arc::clone(tenant))) {
                    let label = label(tenant);
                    add(self.shown.entry((device.name.clone(), Arc::clone(&label))).or_default(), more);
                    labels.insert(label);
                }
            }
        }
        self.told = told;
        // What is counted together stays.
        self.shown.retain(|(_, label), _| **label == *super::OTHER || labels.contains(label));
    }
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

fn driver(device: &DeviceStats) -> Vec<Sample> {
    let Some(memory) = &device.driver else { return vec![] };
    let used = memory.total.saturating_sub(memory.free);
    let kinds = [
        ("total", memory.total),
        ("used", used),
        ("pool_used", memory.pool_used),
        ("pool_reserved", memory.pool_reserved),
        ("context", memory.context),
    ];
    kinds.map(|(kind, bytes)| Sample::new([&*device.name, kind], bytes)).into()
}
