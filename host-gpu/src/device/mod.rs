//! What the machine has to run graphs on: its cores, and a GPU if there is one.
//!
//! All devices are shared by the same rules. What makes a GPU another device is that it has memory of its own, into which
//! a model goes from host memory, and that it is only called on threads of its own.

mod config;
#[cfg(feature = "cuda")]
mod cuda;
mod probe;
mod reserves;
mod stats;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::reserves::Reserves;
use crate::Error;
use crate::backend::{Backend, Plan, Shapes, Tract};
use crate::error::nanos;
use crate::examine::{Examiner, Report};
use crate::job::{Run, Waiter};
use crate::model::{ModelPolicy, ModelSource};
use crate::quota::{Kind, Ledger};
use crate::residency::{Form, Held, Hold, Key, Residency, Resident, Tier};
use crate::ride::Passenger;
use crate::sched::batch::Filling;
use crate::sched::fair::Sharing;
use crate::sched::lane::{Lane, Lanes};
use crate::service::DeviceConfig;
use crate::tab::Tab;
use crate::tensor::Tensor;

pub use config::GpuConfig;
pub use probe::{GpuFolders, GpuPart, gpu_parts};
pub(crate) use stats::Counts;
pub use stats::{DeviceStats, DriverMemory};

/// How the CPU is called.
pub(crate) const CPU: &str = "cpu0";
/// How the GPU is called.
pub(crate) const GPU: &str = "gpu0";

/// The kind of device that a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeviceKind {
    #[default]
    Cpu,
    Gpu,
}

impl DeviceKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }
}

/// A device with memory and threads of its own.
pub(crate) trait Hardware: Send + Sync {
    /// Does something on one of the device's threads.
    fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> Result<(), Error>;

    /// What the driver says of the device's memory, if it says anything.
    fn memory(&self) -> Option<DriverMemory>;

    /// Whether nothing works on it any more.
    fn has_failed(&self) -> bool;
}

/// What runs graphs, and what shares it among tenants.
pub(crate) struct Device {
    pub name: &'static str,
    kind: DeviceKind,
    backend: Box<dyn Backend>,
    hardware: Option<Arc<dyn Hardware>>,
    pub lanes: Lanes<Passenger>,
    ledger: Arc<Ledger>,
    residency: Arc<Residency>,
    /// What of its memory is nobody's to have, where a driver counts it too.
    reserves: Mutex<Option<Reserves>>,
    /// Opens what tenants bring, before the engine here does.
    examiner: Arc<dyn Examiner>,
    /// Permits of graphs that are made ready for new shapes.
    preparations: Arc<Semaphore>,
    /// Permits of models that are loaded.
    loading: Arc<Semaphore>,
    pub batches: AtomicU64,
    pub batched: AtomicU64,
    operators: Arc<AtomicU64>,
    /// Nanoseconds of loading and preparing.
    load_time: AtomicU64,
}

/// A time of loading that goes on.
struct Timed<'a> {
    device: &'a Device,
    tab: &'a Tab,
    is_graph: bool,
    since: Instant,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let took = nanos(self.since.elapsed());
        self.device.load_time.fetch_add(took, Ordering::Relaxed);
        self.tab.loaded(took, self.is_graph);
    }
}

/// What a load has made.
struct Made {
    /// Bytes that it takes, if that is known.
    takes: Option<u64>,
    form: Form,
    /// What it was made of, if it needs that on.
    source: Option<Hold>,
}

/// What is not the same for all devices.
struct Parts<'a> {
    name: &'static str,
    kind: DeviceKind,
    backend: Box<dyn Backend>,
    hardware: Option<Arc<dyn Hardware>>,
    lanes: NonZeroUsize,
    queue: usize,
    sharing: Sharing,
    memory: u64,
    quota: Option<u64>,
    /// Graphs that may be loaded at one time, and as many that may be prepared for shapes.
    loaders: usize,
    config: &'a DeviceConfig,
    examiner: Arc<dyn Examiner>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Device {
    /// The cores of the host.
    pub fn cpu(config: &DeviceConfig, examiner: Arc<dyn Examiner>) -> Arc<Self> {
        let cores = || std::thread::available_parallelism().ok();
        let lanes = config.cpu_lanes.or_else(cores).unwrap_or(NonZeroUsize::MIN);
        Self::new(Parts {
            name: CPU,
            kind: DeviceKind::Cpu,
            backend: Box::new(Tract { limits: config.model, accelerator: None }),
            hardware: None,
            lanes,
            queue: config.queue,
            sharing: config.sharing,
            memory: config.memory,
            quota: config.tenant.memory,
            loaders: lanes.get(),
            config,
            examiner,
        })
    }

    /// The GPU.
    ///
    /// # Errors
    /// What is missing of it: a sentence.
    pub fn gpu(
        config: &DeviceConfig,
        gpu: &GpuConfig,
        examiner: Arc<dyn Examiner>,
    ) -> Result<Arc<Self>, String> {
        #[cfg(feature = "cuda")]
        {
            let parts = gpu.only_with.as_ref().map(gpu_parts).unwrap_or_default();
            let missing: Vec<&str> =
                parts.iter().filter(|part| part.found.is_none()).map(|part| part.part).collect();
            if !missing.is_empty() {
                return Err(format!("this machine lacks {}", missing.join(", ")));
            }
            let cuda = cuda::Cuda::start(gpu)?;
            let backend = Tract { limits: config.model, accelerator: Some(Arc::clone(&cuda) as _) };
            Self::with_memory_of_its_own(config, gpu, Box::new(backend), cuda, examiner)
        }
        #[cfg(not(feature = "cuda"))]
        {
            let _ = (config, gpu, examiner);
            Err("this build has no CUDA device".to_owned())
        }
    }

    /// # Errors
    /// If the driver does not say how much memory there is: a sentence.
    fn with_memory_of_its_own(
        config: &DeviceConfig,
        gpu: &GpuConfig,
        backend: Box<dyn Backend>,
        hardware: Arc<dyn Hardware>,
        examiner: Arc<dyn Examiner>,
    ) -> Result<Arc<Self>, String> {
        let there = hardware.memory().ok_or("the driver does not say how much memory it has")?;
        let device = Self::new(Parts {
            name: GPU,
            kind: DeviceKind::Gpu,
            backend,
            hardware: Some(hardware),
            lanes: gpu.lanes,
            queue: gpu.queue,
            sharing: Sharing { suspended: gpu.suspended, ..config.sharing },
            memory: there.total,
            quota: config.tenant.gpu_memory,
            loaders: 1,
            config,
            examiner,
        });
        let reserves = Reserves::new(&device.ledger, there, gpu.memory)?;
        *device.reserves.lock().unwrap_or_else(PoisonError::into_inner) = Some(reserves);
        Ok(device)
    }

    fn new(parts: Parts<'_>) -> Arc<Self> {
        let Parts { name, kind, backend, hardware, config, loaders, .. } = parts;
        let ledger = Ledger::new(name, parts.memory, parts.quota);
        Arc::new(Self {
            name,
            kind,
            backend,
            hardware,
            lanes: Lanes::new(name, parts.lanes, parts.queue, parts.sharing, config.tenant.clone()),
            residency: Residency::new(Arc::clone(&ledger), config.eviction),
            ledger,
            reserves: Mutex::default(),
            examiner: parts.examiner,
            preparations: Arc::new(Semaphore::new(loaders)),
            loading: Arc::new(Semaphore::new(loaders)),
            batches: AtomicU64::new(0),
            batched: AtomicU64::new(0),
            operators: Arc::default(),
            load_time: AtomicU64::new(0),
        })
    }

    /// The most bytes that a tenant may have of it, from now on.
    pub fn set_quota(&self, tenant: &Arc<str>, quota: Option<u64>) {
        self.ledger.set_quota(tenant, quota);
    }

    /// Does something that may take long, where this device's work is done.
    ///
    /// # Errors
    /// Its own; [`Error::EnginePanic`].
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let Some(hardware) = &self.hardware else {
            return tokio::task::spawn_blocking(work)
                .await
                .unwrap_or_else(|error| Err(Error::from_join(error)));
        };
        let (answer, answered) = tokio::sync::oneshot::channel();
        let work = move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let result = result.unwrap_or_else(|panic| Err(Error::from_panic(&*panic)));
            let _ = answer.send(result);
        };
        hardware.spawn(Box::new(work))?;
        answered.await.unwrap_or(Err(Error::Cancelled))
    }

    /// Whether short runs may be on their caller's thread.
    pub fn runs_anywhere(&self) -> bool {
        self.hardware.is_none()
    }

    /// # Errors
    /// [`Error::DeviceFailed`].
    pub fn works(&self) -> Result<(), Error> {
        match &self.hardware {
            Some(hardware) if hardware.has_failed() => {
                Err(Error::DeviceFailed { device: self.name.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// A hold on a model's graph, which is loaded if it is not there: through `host`, the device whose memory is the
    /// host's, if this one has another.
    ///
    /// # Errors
    /// As [`crate::Service::load`].
    pub async fn lease(
        self: &Arc<Self>,
        host: Option<&Arc<Self>>,
        owner: &Arc<str>,
        model: &ModelSource,
        tab: &Arc<Tab>,
    ) -> Result<Hold, Error> {
        self.works()?;
        let key = Key { owner: Arc::clone(owner), digest: Arc::clone(&model.digest), tier: Tier::Device };
        let load = || self.load(host.map(Arc::clone), Arc::clone(owner), model.clone(), Arc::clone(tab));
        self.residency.lease(key, model.policy.keep, load).await
    }

    fn load(
        self: &Arc<Self>,
        host: Option<Arc<Self>>,
        owner: Arc<str>,
        model: ModelSource,
        tab: Arc<Tab>,
    ) -> BoxFuture<'static, Result<Resident, Error>> {
        let device = Arc::clone(self);
        let loading = async move {
            let memory = device.needs(&model).await?;
            let parsed = match host {
                Some(host) => Some(host.parsed(&device, &owner, &model, memory, &tab).await?),
                None => None,
            };
            let source = model.clone();
            let make = move |device: &Self| {
                let graph = match &parsed {
                    Some(parsed) => parsed.resident().parsed()?.prepare()?,
                    None => device.backend.parse(source.format, &source.read()?)?.prepare()?,
                };
                // One that is made for each shape reads it each time.
                let source = parsed.filter(|_| graph.made_per_shape());
                Ok(Made { takes: graph.weights(), form: Form::Graph(graph), source })
            };
            device.loaded(owner, model, memory, (tab, true), make).await
        };
        loading.boxed()
    }

    /// A hold on what was read of a model for another device, in this one's memory.
    async fn parsed(
        self: &Arc<Self>,
        device: &Arc<Self>,
        owner: &Arc<str>,
        model: &ModelSource,
        memory: u64,
        tab: &Arc<Tab>,
    ) -> Result<Hold, Error> {
        let key = Key { owner: Arc::clone(owner), digest: Arc::clone(&model.digest), tier: Tier::Host };
        let keep = model.policy.keep_on_host();
        let load = || {
            let (host, device) = (Arc::clone(self), Arc::clone(device));
            let (owner, model, tab) = (Arc::clone(owner), model.clone(), Arc::clone(tab));
            let loading = async move {
                let source = model.clone();
                let make = move |_: &Self| {
                    let parsed = device.backend.parse(source.format, &source.read()?)?;
                    Ok(Made { takes: Some(parsed.bytes()), form: Form::Parsed(parsed), source: None })
                };
                host.loaded(owner, model, memory, (tab, false), make).await
            };
            loading.boxed()
        };
        self.residency.lease(key, keep, load).await
    }

    /// Bytes that a model needs, as whoever examined it has found.
    async fn needs(&self, model: &ModelSource) -> Result<u64, Error> {
        match model.examined {
            Some(memory) => Ok(memory),
            None => Ok(self.examine(model).await?.memory),
        }
    }

    /// # Errors
    /// As [`crate::examine`]; [`Error::Died`].
    pub async fn examine(&self, model: &ModelSource) -> Result<Report, Error> {
        self.examiner.examine(model, None).await
    }

    /// Has something in this device's memory, for which as much is reserved as the model needs, and in the end as much as it
    /// takes, if that is told. What that takes is written on the tab, as a graph's load if it is one.
    async fn loaded(
        self: &Arc<Self>,
        owner: Arc<str>,
        model: ModelSource,
        memory: u64,
        (tab, is_graph): (Arc<Tab>, bool),
        make: impl FnOnce(&Self) -> Result<Made, Error> + Send + 'static,
    ) -> Result<Resident, Error> {
        // A load that has begun goes on, also if nobody waits for it any more: there are only so many.
        let permit = Arc::clone(&self.loading).acquire_owned().await.map_err(|_| Error::Cancelled)?;
        let device = Arc::clone(self);
        self.run(move || {
            let _permit = permit;
            let _timed = device.timed(&tab, is_graph);
            device.reconcile();
            let stay = device.residency.stay(&owner, &model.digest);
            let mut reserved = device.residency.reserve(&owner, Kind::Weights, memory, stay.tab())?;
            let Made { takes, form, source } = make(&device)?;
            // The examination counted a run's tensors too, which each run takes for itself.
            if let Some(takes) = takes {
                device.residency.resize(&mut reserved, takes)?;
            }
            Ok(Resident::new(form, model, reserved, stay, source))
        })
        .await
    }

    /// Has a model kept in another way from now on, where it is in this device's memory.
    pub fn keep(&self, owner: &Arc<str>, model: &ModelSource, policy: &ModelPolicy) {
        for (tier, keep) in [(Tier::Device, policy.keep), (Tier::Host, policy.keep_on_host())] {
            let key = Key { owner: Arc::clone(owner), digest: Arc::clone(&model.digest), tier };
            self.residency.set_keep(&key, keep);
        }
    }

    /// A run of this graph on this lane.
    pub fn on(
        &self,
        lane: Lane<Passenger>,
        plan: Arc<dyn Plan>,
        resident: &Arc<Resident>,
        waiters: Vec<Waiter>,
        filling: Filling,
    ) -> Run<Passenger> {
        Run {
            plan,
            _resident: Arc::clone(resident),
            residency: Arc::clone(&self.residency),
            lane,
            yields: true,
            deadline: None,
            waiters,
            filling,
            operators: Arc::clone(&self.operators),
        }
    }

    /// Makes a graph ready for shapes that it has not seen, before it asks for a lane: one shape of a graph at a time,
    /// and as many at one time as the device has loaders. A caller that leaves while it waits for its turn has no part in
    /// it; once begun it goes on, even if the caller leaves.
    pub async fn ready(
        self: &Arc<Self>,
        resident: Arc<Resident>,
        inputs: &[Tensor],
        tab: &Arc<Tab>,
    ) -> Result<Arc<dyn Plan>, Error> {
        let turn = Arc::clone(&resident.preparing).lock_owned().await;
        // Whoever had the turn before may have wanted the same.
        if let Some(plan) = resident.graph()?.ready(inputs)? {
            return Ok(plan);
        }
        // Of the inputs only their shapes go on without the caller.
        let shapes = inputs.iter().map(|input| input.shape().to_vec()).collect();
        let (device, tab) = (Arc::clone(self), Arc::clone(tab));
        let prepared = tokio::spawn(async move {
            let plan = device.prepare(resident, shapes, tab).await;
            drop(turn);
            plan
        });
        prepared.await.unwrap_or_else(|error| Err(Error::from_join(error)))
    }

    async fn prepare(
        self: &Arc<Self>,
        resident: Arc<Resident>,
        shapes: Shapes,
        tab: Arc<Tab>,
    ) -> Result<Arc<dyn Plan>, Error> {
        if resident.needs_examination(&shapes) {
            self.examiner.examine(&resident.model, Some(shapes.clone())).await?;
            resident.remember_examined(shapes.clone());
        }
        let permit = Arc::clone(&self.preparations).acquire_owned().await.map_err(|_| Error::Cancelled)?;
        let (device, residency) = (Arc::clone(self), Arc::clone(&self.residency));
        self.run(move || {
            let _permit = permit;
            let _timed = device.timed(&tab, false);
            let graph = resident.graph()?;
            let mut more = match graph.made_per_shape() {
                true => Some(resident.reserve(&residency)?),
                false => None,
            };
            let mut book = |bytes| -> Result<Box<dyn Any + Send + Sync>, Error> {
                let Some(mut reserved) = more.take() else { return Ok(Box::new(())) };
                residency.resize(&mut reserved, bytes)?;
                Ok(Box::new(resident.booked(reserved)))
            };
            graph.prepare(shapes, &mut book)
        })
        .await
    }

    /// Counts the time until the answer is dropped as one of loading, and writes it on a tab.
    fn timed<'a>(&'a self, tab: &'a Tab, is_graph: bool) -> Timed<'a> {
        Timed { device: self, tab, is_graph, since: Instant::now() }
    }

    /// What has been held of its memory, not by requests, since this was last asked.
    pub fn take_held(&self) -> Vec<Held> {
        self.residency.take_held()
    }

    /// Has the books say what the driver and the engine take besides what is planned.
    fn reconcile(&self) {
        let Some(hardware) = &self.hardware else { return };
        if let Some(reserves) = &mut *self.reserves.lock().unwrap_or_else(PoisonError::into_inner) {
            reserves.reconcile(&**hardware);
        }
    }

    pub fn stats(&self) -> DeviceStats {
        self.reconcile();
        let lanes = self.lanes.stats();
        DeviceStats {
            name: self.name.to_owned(),
            kind: self.kind,
            lanes: lanes.total,
            busy: lanes.busy,
            queued: lanes.queued,
            queued_by: lanes.queued_by,
            suspended: lanes.suspended,
            suspensions: lanes.suspensions,
            device_time: lanes.device_time,
            used: lanes.used,
            unbilled: lanes.unbilled,
            load_time: self.load_time.load(Ordering::Relaxed),
            memory: self.ledger.snapshot(),
            driver: self.hardware.as_ref().and_then(|hardware| hardware.memory()),
            failed: self.works().is_err(),
        }
    }

    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let residency = &self.residency;
        Counts {
            loads: read(&residency.loads),
            unloads: read(&residency.unloads),
            evictions: read(&residency.evictions),
            hits: read(&residency.hits),
            failed_loads: read(&residency.failed_loads),
            batches: read(&self.batches),
            batched: read(&self.batched),
            operators: read(&self.operators),
        }
    }

    pub fn resident(&self) -> Vec<crate::residency::ResidentGraph> {
        self.residency.resident()
    }
}
