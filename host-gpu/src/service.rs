//! The door to devices and models. Everything that a tenant does with a model goes through here.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::Error;
use crate::backend::{Backend, Plan, Shapes, Tract};
use crate::device::{DeviceKind, DeviceStats};
use crate::error::nanos;
use crate::examine::{Examiner, ModelLimits, Report};
use crate::job::{Present, Run, Took, Waiter};
use crate::model::{ModelSource, Signature};
use crate::quota::{Kind, Ledger, Reserved, SYSTEM};
use crate::residency::{Eviction, Hold, Keep, Key, Residency, Resident, ResidentGraph};
use crate::ride::Passenger;
use crate::sched::Class;
use crate::sched::batch::{Batching, Filling};
use crate::sched::fair::Sharing;
use crate::sched::lane::{Lane, Lanes, Request, TenantShare};
use crate::tensor::Tensor;

/// A graph whose runs are surely shorter runs on its caller's thread: waking another one would take longer than that.
const SHORT: Duration = Duration::from_millis(1);

/// What the operator may set about the devices.
#[derive(Debug, Clone)]
pub struct DeviceConfig {
    /// Lanes of the CPU device; one per core when absent.
    pub cpu_lanes: Option<NonZeroUsize>,
    /// The most requests that may wait for a device.
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
        }
    }
}

/// How one inference is to be scheduled.
#[derive(Debug, Clone, Copy, Default)]
pub struct Job {
    pub class: Class,
    /// When nobody wants the answer any more.
    pub deadline: Option<Instant>,
    /// The longest that it may wait for a lane.
    pub queue_timeout: Option<Duration>,
    /// Whether it rides with no other request.
    pub alone: bool,
}

/// The answer of one inference, and what it took.
#[derive(Debug)]
pub struct Inference {
    /// Named outputs, in the model's order.
    pub outputs: Vec<(String, Tensor)>,
    pub cost: Cost,
}

/// What one inference took. The parts of those who rode together make up exactly what their job took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Time between asking for a lane and getting it.
    pub queued: Duration,
    /// Time that a lane was held: its part of the job's.
    pub device: Duration,
    /// Time that the graph took to load, if it was loaded for the lease that this is the first inference of.
    pub load: Duration,
    /// Operators that its job ran.
    pub operators: u64,
    /// The most bytes in the job's tensors at one time: its part.
    pub peak: u64,
    /// Rows that it brought.
    pub rows: u64,
    /// Rows of the batch that it rode in, rows of zeros included.
    pub batch: u64,
    /// Rows of zeros in that batch.
    pub padding: u64,
}

/// Counters since the start, and the state of the moment.
#[derive(Debug, Clone)]
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

/// The door. Cloning it gives another handle on the same devices.
#[derive(Clone)]
pub struct Service(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    backend: Tract,
    pub lanes: Lanes<Passenger>,
    ledger: Arc<Ledger>,
    /// The quota of a tenant that has not been given one.
    tenant_memory: Option<u64>,
    pub residency: Arc<Residency>,
    /// Opens what tenants bring, before the engine here does.
    examiner: Arc<dyn Examiner>,
    /// Permits of graphs that are made ready for new shapes.
    preparations: Arc<Semaphore>,
    /// Permits of models that are loaded.
    loading: Arc<Semaphore>,
    inferences: AtomicU64,
    failed_inferences: AtomicU64,
    pub batches: AtomicU64,
    pub batched: AtomicU64,
    operators: Arc<AtomicU64>,
}

/// A tenant's hold on a graph, which keeps it in memory.
#[derive(Debug)]
pub struct Lease {
    pub(crate) tenant: Arc<str>,
    pub(crate) hold: Hold,
    pub(crate) batching: Arc<Batching>,
    /// Nanoseconds of its load that no inference has been told of.
    untold: AtomicU64,
}

impl Lease {
    pub fn signature(&self) -> &Signature {
        self.hold.signature()
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

const CPU: &str = "cpu0";

impl Service {
    pub fn new(config: &DeviceConfig, examiner: Arc<dyn Examiner>) -> Self {
        let cores = || std::thread::available_parallelism().ok();
        let lanes = config.cpu_lanes.or_else(cores).unwrap_or(NonZeroUsize::MIN);
        let ledger = Ledger::new(CPU, config.memory);
        Self(Arc::new(Inner {
            backend: Tract { limits: config.model },
            lanes: Lanes::new(CPU, lanes, config.queue, config.sharing, config.tenant.clone()),
            residency: Residency::new(Arc::clone(&ledger), config.eviction),
            ledger,
            tenant_memory: config.tenant.memory,
            examiner,
            preparations: Arc::new(Semaphore::new(lanes.get())),
            loading: Arc::new(Semaphore::new(lanes.get())),
            inferences: AtomicU64::new(0),
            failed_inferences: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            batched: AtomicU64::new(0),
            operators: Arc::default(),
        }))
    }

    /// Sets what a tenant may have of the devices, from now on. What it has over a smaller quota stays until it is let go.
    pub fn set_tenant(&self, tenant: &str, share: TenantShare) {
        let tenant = tenant.into();
        self.0.ledger.set_quota(&tenant, share.memory);
        self.0.lanes.set_share(&tenant, share);
    }

    /// Has a model examined, to learn its signature and what it needs where axes that vary have one element.
    ///
    /// # Errors
    /// What the engine has against it, or that it needs too much: see [`crate::examine`]; [`Error::Died`].
    pub async fn inspect(&self, model: &ModelSource) -> Result<Report, Error> {
        self.0.examiner.examine(model, None).await
    }

    /// Puts a model on a device, or finds it there. The graph stays while the lease lives, and after that as the model's
    /// policy says. A model that this engine has not examined is examined first.
    ///
    /// # Errors
    /// [`Error::NoGpu`] for a GPU on a machine without one; what the engine has against the model;
    /// [`Error::TenantMemory`], [`Error::DeviceMemory`] where it does not fit and nothing idle can make room.
    pub async fn load(&self, tenant: &str, model: &ModelSource, device: DeviceKind) -> Result<Lease, Error> {
        self.has_device(device)?;
        if self.0.tenant_memory.is_some() && !self.0.lanes.has_share(tenant) {
            self.0.ledger.set_quota(&tenant.into(), self.0.tenant_memory);
        }
        let owner = if model.policy.public { SYSTEM } else { tenant };
        let key = Key { owner: owner.into(), digest: Arc::clone(&model.digest) };
        let load = || {
            let (inner, model, owner) = (Arc::clone(&self.0), model.clone(), Arc::clone(&key.owner));
            let loading = async move {
                let memory = match model.examined {
                    Some(memory) => memory,
                    None => inner.examiner.examine(&model, None).await?.memory,
                };
                // A load that has begun goes on, also if nobody waits for it any more: there are only so many.
                let permit = Arc::clone(&inner.loading).acquire_owned().await;
                let permit = permit.map_err(|_| Error::Cancelled)?;
                let loading = tokio::task::spawn_blocking(move || {
                    let _permit = permit;
                    let reserved = inner.residency.reserve(&owner, Kind::Weights, memory)?;
                    inner.load(model, reserved)
                });
                loading.await.unwrap_or_else(|error| Err(Error::from_join(error)))
            };
            loading.boxed()
        };
        let hold = self.0.residency.lease(key.clone(), model.policy.keep, load).await?;
        let untold = AtomicU64::new(hold.load_time().map_or(0, nanos));
        Ok(Lease { tenant: tenant.into(), hold, batching: Arc::clone(&model.policy.batching), untold })
    }

    /// Has a graph kept in another way from now on, if it is in memory: with the default, it goes when nobody holds it.
    pub fn keep(&self, tenant: &str, model: &ModelSource, keep: Keep) {
        let owner = if model.policy.public { SYSTEM } else { tenant };
        self.0.residency.set_keep(&Key { owner: owner.into(), digest: Arc::clone(&model.digest) }, keep);
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
        let signature = lease.signature();
        let inputs = signature.order_inputs(inputs)?;
        let rides = !job.alone && lease.batching.is_on() && lease.hold.resident().rides();
        let rows = if rides { signature.rows(&inputs) } else { None };
        let answer = match rows.filter(|rows| *rows < lease.batching.max_batch) {
            Some(rows) => match self.ride(lease, &inputs, rows, job).await? {
                Some(answer) => answer,
                None => self.alone(lease, inputs, job).await?,
            },
            None => self.alone(lease, inputs, job).await?,
        };
        let (outputs, mut cost) = answer;
        cost.load = Duration::from_nanos(lease.untold.swap(0, Ordering::Relaxed));
        let names = signature.outputs.iter().map(|spec| spec.name.clone());
        Ok(Inference { outputs: names.zip(outputs).collect(), cost })
    }

    async fn alone(
        &self,
        lease: &Lease,
        inputs: Vec<Tensor>,
        job: Job,
    ) -> Result<(Vec<Tensor>, Cost), Error> {
        let resident = lease.hold.resident();
        let plan = match resident.graph.ready(&inputs)? {
            Some(plan) => plan,
            None => {
                let preparing = self.0.ready(Arc::clone(resident), &inputs);
                within(job.deadline, "preparing the graph for these shapes", preparing).await?
            }
        };
        let short = plan.steady().is_some_and(|took| took < SHORT);
        let rows = lease.signature().rows(&inputs).unwrap_or(1);
        let asked = Instant::now();
        let request = lease.request(rows, job);
        let waiting = self.0.lanes.acquire(std::slice::from_ref(&request));
        let waiting = no_longer_than(job.queue_timeout, waiting);
        let lane = within(job.deadline, "waiting for a lane", waiting).await?;
        let queued = asked.elapsed();

        let present = Present::default();
        let waiter = Waiter { tenant: Arc::clone(&lease.tenant), rows, gone: Arc::clone(&present.0) };
        let running = lane.job();
        let run = Run {
            deadline: job.deadline,
            yields: !short,
            ..self.0.on(lane, plan, resident, vec![waiter], Filling::default())
        };
        let (outputs, took) = if short {
            run_here(run, inputs)?
        } else {
            // If nobody waits for it any more while it makes way, it ends there.
            let (lanes, gone) = (self.0.lanes.clone(), Arc::clone(&present.0));
            let cancel = move |running| {
                gone.store(true, Ordering::Relaxed);
                lanes.cancel(running);
            };
            let _cancel = running.map(|running| OnDrop(Some(move || cancel(running))));
            let run = tokio::task::spawn_blocking(move || run.run(inputs));
            let run = run.map(|result| result.unwrap_or_else(|error| Err(Error::from_join(error))));
            let answer = within(job.deadline, "running", run).await;
            drop(present);
            answer?
        };
        let Took { device, operators, peak } = took;
        Ok((outputs, Cost { queued, device, operators, peak, rows, batch: rows, ..Cost::default() }))
    }

    /// Whether there is a device of this kind.
    ///
    /// # Errors
    /// [`Error::NoGpu`].
    pub fn has_device(&self, kind: DeviceKind) -> Result<(), Error> {
        match kind {
            DeviceKind::Cpu => Ok(()),
            DeviceKind::Gpu => Err(Error::NoGpu),
        }
    }

    pub fn stats(&self) -> Stats {
        let Inner { residency, ledger, lanes, .. } = &*self.0;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (memory, lanes) = (ledger.snapshot(), lanes.stats());
        Stats {
            loads: read(&residency.loads),
            unloads: read(&residency.unloads),
            evictions: read(&residency.evictions),
            hits: read(&residency.hits),
            failed_loads: read(&residency.failed_loads),
            inferences: read(&self.0.inferences),
            failed_inferences: read(&self.0.failed_inferences),
            batches: read(&self.0.batches),
            batched: read(&self.0.batched),
            operators: read(&self.0.operators),
            memory: memory.used,
            devices: vec![DeviceStats {
                name: CPU.to_owned(),
                kind: DeviceKind::Cpu,
                lanes: lanes.total,
                busy: lanes.busy,
                queued: lanes.queued,
                queued_by: lanes.queued_by,
                suspended: lanes.suspended,
                suspensions: lanes.suspensions,
                device_time: lanes.device_time,
                memory,
            }],
            resident: residency.resident(),
        }
    }
}

impl Lease {
    pub(crate) fn request(&self, rows: u64, job: Job) -> Request {
        Request {
            tenant: Arc::clone(&self.tenant),
            class: job.class,
            graph: self.hold.resident().id,
            rows,
            deadline: job.deadline,
        }
    }
}

impl Inner {
    fn load(&self, model: ModelSource, mut reserved: Reserved) -> Result<Resident, Error> {
        let graph = self.backend.load(model.format, &model.read()?)?;
        // The examination counted a run's tensors too, which each run takes for itself.
        if let Some(weights) = graph.weights().filter(|weights| *weights < reserved.bytes()) {
            reserved.resize(weights)?;
        }
        Ok(Resident::new(graph, model, reserved))
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
    /// and as many at one time as there are lanes. A caller that leaves while it waits for its turn has no part in it;
    /// once begun it goes on, even if the caller leaves.
    pub async fn ready(
        self: &Arc<Self>,
        resident: Arc<Resident>,
        inputs: &[Tensor],
    ) -> Result<Arc<dyn Plan>, Error> {
        let turn = Arc::clone(&resident.preparing).lock_owned().await;
        // Whoever had the turn before may have wanted the same.
        if let Some(plan) = resident.graph.ready(inputs)? {
            return Ok(plan);
        }
        // Of the inputs only their shapes go on without the caller.
        let shapes = inputs.iter().map(|input| input.shape().to_vec()).collect();
        let inner = Arc::clone(self);
        let prepared = tokio::spawn(async move {
            let plan = inner.prepare(resident, shapes).await;
            drop(turn);
            plan
        });
        prepared.await.unwrap_or_else(|error| Err(Error::from_join(error)))
    }

    async fn prepare(&self, resident: Arc<Resident>, shapes: Shapes) -> Result<Arc<dyn Plan>, Error> {
        if resident.needs_examination(&shapes) {
            self.examiner.examine(&resident.model, Some(shapes.clone())).await?;
            resident.remember_examined(shapes.clone());
        }
        if resident.graph.made_per_shape() {
            resident.reserve(&self.residency)?;
        }
        let permit = Arc::clone(&self.preparations).acquire_owned().await.map_err(|_| Error::Cancelled)?;
        let prepare = move || {
            let plan = resident.graph.prepare(shapes);
            drop(permit);
            plan
        };
        tokio::task::spawn_blocking(prepare).await.unwrap_or_else(|error| Err(Error::from_join(error)))
    }
}

fn run_here<P>(run: Run<P>, inputs: Vec<Tensor>) -> Result<(Vec<Tensor>, Took), Error> {
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

/// Calls something when it is dropped.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}
