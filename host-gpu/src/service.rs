//! The door to devices and models. Everything that a tenant does with a model goes through here.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::Error;
use crate::device::{Device, DeviceKind, DeviceStats, GpuConfig};
use crate::examine::{Examiner, ModelLimits, Report};
use crate::job::{EndOnDrop, Run, Waiter};
use crate::model::{ModelPolicy, ModelSource, Signature};
use crate::quota::SYSTEM;
use crate::residency::{Eviction, Held, Hold, ResidentGraph};
use crate::sched::Class;
use crate::sched::batch::{Batching, Filling};
use crate::sched::fair::Sharing;
use crate::sched::lane::{Request, TenantShare};
use crate::sched::times::shape;
use crate::tab::{Mark, Tab, Used};
use crate::tensor::Tensor;

/// A graph whose runs are surely shorter runs on its caller's thread: waking another one would take longer than that.
const SHORT: Duration = Duration::from_millis(1);

/// What the operator may set about the devices.
#[derive(Debug, Clone)]
pub struct DeviceConfig {
    /// Lanes of the CPU device; one per core when absent.
    pub cpu_lanes: Option<NonZeroUsize>,
    /// Requests that may wait for the CPU. When so many wait, a tenant below its even part of them may still have more
    /// waiting, until twice as many do; and then one that has none waiting, one.
    pub queue: usize,
    /// The most bytes of all models in memory and all jobs that run, as they plan them.
    pub memory: u64,
    /// How tenants share it.
    pub sharing: Sharing,
    /// What a tenant may have of it, unless it is told otherwise.
    pub tenant: TenantShare,
    /// Which idle graphs make room for others.
    pub eviction: Eviction,
    /// What a model may need.
    pub model: ModelLimits,
    /// The GPU, if one is to be used.
    pub gpu: Option<GpuConfig>,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            cpu_lanes: None,
            queue: 1024,
            memory: 4 << 30,
            sharing: Sharing::default(),
            tenant: TenantShare::default(),
            eviction: Eviction::default(),
            model: ModelLimits::default(),
            gpu: None,
        }
    }
}

/// How one inference is to be scheduled.
#[derive(Debug, Clone, Default)]
pub struct Job {
    pub class: Class,
    /// When nobody wants the answer any more.
    pub deadline: Option<Instant>,
    /// The longest that it may wait for a lane.
    pub queue_timeout: Option<Duration>,
    /// Whether it rides with no other request.
    pub alone: bool,
    /// Where what it takes is written, also if it fails or its caller goes.
    pub tab: Arc<Tab>,
}

/// The answer of one inference, and what it took.
#[derive(Debug)]
pub struct Inference {
    /// Named outputs, in the model's order.
    pub outputs: Vec<(String, Tensor)>,
    pub cost: Cost,
    /// The marks of all that rode in the same job, its own included; empty where it rode alone.
    pub with: Vec<Mark>,
}

/// What one inference took. The parts of those who rode together make up exactly what their jobs took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Time between asking for a lane and getting it.
    pub queued: Duration,
    /// What was on its tab.
    pub used: Used,
    /// Rows that it brought.
    pub rows: u64,
    /// Rows of the batch that it rode in, rows of zeros included.
    pub batch: u64,
    /// Rows of zeros in that batch.
    pub padding: u64,
}

/// Counters since the start, and the state of the moment.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Graphs loaded.
    pub loads: u64,
    /// Graphs that left with their last lease, or some time after it.
    pub unloads: u64,
    /// Graphs that left to make room.
    pub evictions: u64,
    /// Leases on graphs that were there or on their way.
    pub hits: u64,
    pub failed_loads: u64,
    /// Inferences that ended well.
    pub inferences: u64,
    /// Inferences that ended in an error.
    pub failed_inferences: u64,
    /// Jobs of more than one request.
    pub batches: u64,
    /// Requests that rode in those.
    pub batched: u64,
    /// Operators run, those of cancelled jobs included.
    pub operators: u64,
    /// Bytes that models and jobs have planned, over all devices.
    pub memory: u64,
    pub devices: Vec<DeviceStats>,
    pub resident: Vec<ResidentGraph>,
}

impl Cost {
    /// Time that lanes were held: its part of its jobs'.
    pub fn device(&self) -> Duration {
        Duration::from_nanos(self.used.device)
    }
}

/// The door. Cloning it gives another handle on the same devices.
#[derive(Clone)]
pub struct Service(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    cpu: Arc<Device>,
    /// The GPU, or why there is none: a sentence.
    gpu: Result<Arc<Device>, String>,
    inferences: AtomicU64,
    failed_inferences: AtomicU64,
}

/// A tenant's hold on a graph, which keeps it in memory.
#[derive(Debug)]
pub struct Lease {
    pub(crate) tenant: Arc<str>,
    pub(crate) device: Arc<Device>,
    pub(crate) hold: Hold,
    signature: Signature,
    pub(crate) batching: Arc<Batching>,
}

impl Lease {
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The name of the device that it is on.
    pub fn device(&self) -> &str {
        self.device.name
    }

    /// The model's digest.
    pub fn digest(&self) -> &str {
        self.hold.digest()
    }

    /// How long the graph took to load, if it was loaded for this lease and not for an earlier one.
    pub fn load_time(&self) -> Option<Duration> {
        self.hold.load_time()
    }
}

impl Service {
    /// Starts the devices. A GPU takes a while; where there is none that works, there is none.
    pub fn new(config: &DeviceConfig, examiner: Arc<dyn Examiner>) -> Self {
        let gpu = match &config.gpu {
            Some(gpu) => Device::gpu(config, gpu, Arc::clone(&examiner)),
            None => Err("it is turned off".to_owned()),
        };
        Self::of(Device::cpu(config, examiner), gpu)
    }

    pub(crate) fn of(cpu: Arc<Device>, gpu: Result<Arc<Device>, String>) -> Self {
        let (inferences, failed_inferences) = Default::default();
        Self(Arc::new(Inner { cpu, gpu, inferences, failed_inferences }))
    }

    fn devices(&self) -> impl Iterator<Item = &Arc<Device>> {
        std::iter::once(&self.0.cpu).chain(&self.0.gpu)
    }

    /// Sets what a tenant may have of the devices, from now on. What it has over a smaller quota stays until it is let go.
    pub fn set_tenant(&self, tenant: &str, share: TenantShare) {
        let tenant: Arc<str> = tenant.into();
        self.0.cpu.set_quota(&tenant, share.memory);
        if let Ok(gpu) = &self.0.gpu {
            gpu.set_quota(&tenant, share.gpu_memory);
        }
        for device in self.devices() {
            device.lanes.set_share(&tenant, share.clone());
        }
    }

    /// Has a model examined, to learn its signature and what it needs where axes that vary have one element.
    ///
    /// # Errors
    /// What the engine has against it, or that it needs too much: see [`crate::examine`]; [`Error::Died`].
    pub async fn inspect(&self, model: &ModelSource) -> Result<Report, Error> {
        self.0.cpu.examine(model).await
    }

    /// Puts a model on a device, or finds it there. The graph stays while the lease lives, and after that as the model's
    /// policy says. A model that this engine has not examined is examined first.
    ///
    /// # Errors
    /// [`Error::NoGpu`] for a GPU on a machine without one; what the engine has against the model;
    /// [`Error::TenantMemory`], [`Error::DeviceMemory`] where it does not fit and nothing idle can make room.
    pub async fn load(&self, tenant: &str, model: &ModelSource, device: DeviceKind) -> Result<Lease, Error> {
        self.load_on(tenant, model, device, &Arc::default()).await
    }

    /// The same. What loading takes is written on the tab of who is the first to ask, also if that goes before it is done.
    ///
    /// # Errors
    /// As [`Service::load`].
    pub async fn load_on(
        &self,
        tenant: &str,
        model: &ModelSource,
        device: DeviceKind,
        tab: &Arc<Tab>,
    ) -> Result<Lease, Error> {
        let device = self.device(device)?;
        let host = (!Arc::ptr_eq(device, &self.0.cpu)).then_some(&self.0.cpu);
        let hold = device.lease(host, &owner(tenant, model), model, tab).await?;
        let tenant: Arc<str> = tenant.into();
        hold.resident().used_by(&tenant);
        let signature = hold.resident().graph()?.signature().clone();
        let batching = Arc::clone(&model.policy.batching);
        Ok(Lease { tenant, device: Arc::clone(device), hold, signature, batching })
    }

    /// What has been held of the devices' memory, not by requests, since this was last asked: what requests held is on their
    /// tabs.
    pub fn take_held(&self) -> Vec<Held> {
        self.devices().flat_map(|device| device.take_held()).collect()
    }

    /// Has a model's graphs kept in another way from now on, where they are in memory: with the default, they go when
    /// nobody holds them.
    pub fn keep(&self, tenant: &str, model: &ModelSource, policy: &ModelPolicy) {
        for device in self.devices() {
            device.keep(&owner(tenant, model), model, policy);
        }
    }

    /// Runs a graph once: checks the inputs, waits for a lane, runs. Dropping the future takes the job out of the
    /// queue, or stops it before its next operator.
    ///
    /// # Errors
    /// Inputs that do not fit the signature; a full queue, or one that was too slow; a deadline that has passed or will;
    /// memory that is not to be had; or what went wrong in the engine.
    pub async fn infer(
        &self,
        lease: &Lease,
        inputs: Vec<(String, Tensor)>,
        job: Job,
    ) -> Result<Inference, Error> {
        let result = self.run(lease, inputs, job).await;
        let counter = if result.is_ok() { &self.0.inferences } else { &self.0.failed_inferences };
        counter.fetch_add(1, Ordering::Relaxed);
        result
    }

    async fn run(&self, lease: &Lease, inputs: Vec<(String, Tensor)>, job: Job) -> Result<Inference, Error> {
        lease.device.works()?;
        lease.hold.resident().used_by(&lease.tenant);
        let tab = Arc::clone(&job.tab);
        let signature = lease.signature();
        let inputs = signature.order_inputs(inputs)?;
        let rides = !job.alone && lease.batching.is_on() && lease.hold.resident().rides();
        let rows = if rides { signature.rows(&inputs) } else { None };
        let answer = match rows.filter(|rows| *rows < lease.batching.max_batch) {
            Some(rows) => match self.ride(lease, &inputs, rows, &job).await? {
                Some(answer) => answer,
                None => (self.alone(lease, inputs, &job).await?, None),
            },
            None => (self.alone(lease, inputs, &job).await?, None),
        };
        let ((outputs, mut cost), with) = answer;
        cost.used = tab.take();
        let names = signature.outputs.iter().map(|spec| spec.name.clone());
        let with = with.map(|with| with.to_vec()).unwrap_or_default();
        Ok(Inference { outputs: names.zip(outputs).collect(), cost, with })
    }

    async fn alone(
        &self,
        lease: &Lease,
        inputs: Vec<Tensor>,
        job: &Job,
    ) -> Result<(Vec<Tensor>, Cost), Error> {
        let (device, resident) = (&lease.device, lease.hold.resident());
        let plan = match resident.graph()?.ready(&inputs)? {
            Some(plan) => plan,
            None => {
                let preparing = device.ready(Arc::clone(resident), &inputs, &job.tab);
                within(job.deadline, "preparing the graph for these shapes", preparing).await?
            }
        };
        let short = device.runs_anywhere() && plan.steady().is_some_and(|took| took < SHORT);
        let rows = lease.signature().rows(&inputs);
        let asked = Instant::now();
        let request = lease.request(rows, &inputs, job);
        let rows = request.rows;
        let waiting = device.lanes.acquire(std::slice::from_ref(&request));
        let waiting = no_longer_than(job.queue_timeout, waiting);
        let lane = within(job.deadline, "waiting for a lane", waiting).await?;
        let queued = asked.elapsed();

        let gone = Arc::default();
        let (tenant, tab) = (Arc::clone(&lease.tenant), Arc::clone(&job.tab));
        let waiter = Waiter { tenant, rows, tab, gone: Arc::clone(&gone) };
        let running = lane.job();
        let run = Run {
            deadline: job.deadline,
            yields: !short,
            ..device.on(lane, plan, resident, vec![waiter], Filling::default())
        };
        let outputs = if short {
            run_here(run, inputs)?
        } else {
            let _ends = EndOnDrop::new(&device.lanes, running, vec![Arc::clone(&gone)]);
            within(job.deadline, "running", device.run(move || run.run(inputs))).await?
        };
        Ok((outputs, Cost { queued, rows, batch: rows, ..Cost::default() }))
    }

    /// Whether there is a device of this kind.
    ///
    /// # Errors
    /// [`Error::NoGpu`].
    pub fn has_device(&self, kind: DeviceKind) -> Result<(), Error> {
        self.device(kind).map(|_| ())
    }

    /// What the device of this kind is called.
    ///
    /// # Errors
    /// [`Error::NoGpu`].
    pub fn device_name(&self, kind: DeviceKind) -> Result<&'static str, Error> {
        self.device(kind).map(|device| device.name)
    }

    /// Why there is no GPU, if there is none: a sentence for the operator.
    pub fn no_gpu(&self) -> Option<&str> {
        self.0.gpu.as_ref().err().map(String::as_str)
    }

    fn device(&self, kind: DeviceKind) -> Result<&Arc<Device>, Error> {
        match (kind, &self.0.gpu) {
            (DeviceKind::Cpu, _) => Ok(&self.0.cpu),
            (DeviceKind::Gpu, Ok(gpu)) => Ok(gpu),
            (DeviceKind::Gpu, Err(_)) => Err(Error::NoGpu),
        }
    }

    pub fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = Stats {
            inferences: read(&self.0.inferences),
            failed_inferences: read(&self.0.failed_inferences),
            ..Stats::default()
        };
        for device in self.devices() {
            let counts = device.counts();
            stats.loads += counts.loads;
            stats.unloads += counts.unloads;
            stats.evictions += counts.evictions;
            stats.hits += counts.hits;
            stats.failed_loads += counts.failed_loads;
            stats.batches += counts.batches;
            stats.batched += counts.batched;
            stats.operators += counts.operators;
            stats.resident.extend(device.resident());
            let device = device.stats();
            stats.memory = stats.memory.saturating_add(device.memory.used);
            stats.devices.push(device);
        }
        stats
    }
}

/// On whose account a model's graph is.
fn owner(tenant: &str, model: &ModelSource) -> Arc<str> {
    if model.policy.public { SYSTEM.into() } else { tenant.into() }
}

impl Lease {
    /// What is asked of a lane for these inputs, which are so many rows if they can ride with others.
    pub(crate) fn request(&self, rows: Option<u64>, inputs: &[Tensor], job: &Job) -> Request {
        Request {
            tenant: Arc::clone(&self.tenant),
            class: job.class,
            graph: self.hold.resident().id,
            rows: rows.unwrap_or(1),
            shape: shape(inputs.iter().map(Tensor::shape), rows.is_some()),
            deadline: job.deadline,
        }
    }
}

fn run_here<P>(run: Run<P>, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, Error> {
    catch_unwind(AssertUnwindSafe(|| run.run(inputs))).unwrap_or_else(|panic| Err(Error::from_panic(&*panic)))
}

/// A step of a job, up to the job's deadline.
pub(crate) async fn within<T>(
    deadline: Option<Instant>,
    step: &'static str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match deadline {
        Some(deadline) => {
            tokio::time::timeout_at(deadline, work).await.map_err(|_| Error::DeadlineExceeded(step.into()))?
        }
        None => work.await,
    }
}

/// A wait for a lane, up to the longest that it may take.
pub(crate) async fn no_longer_than<T>(
    timeout: Option<Duration>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match timeout {
        Some(waited) => {
            tokio::time::timeout(waited, work).await.map_err(|_| Error::QueueTimeout { waited })?
        }
        None => work.await,
    }
}
