//! The door to devices and models. Everything that a tenant does with a model goes through here.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::Error;
use crate::backend::{Backend, Plan, Shapes, Tract};
use crate::device::{self, Device, DeviceKind, DeviceStats};
use crate::examine::{Examiner, ModelLimits, Report};
use crate::model::ModelSource;
use crate::quota::{Memory, Reserved};
use crate::residency::{Key, Lease, Residency, Resident, ResidentGraph};
use crate::sched::lane::Class;
use crate::tensor::Tensor;

/// A graph whose runs are surely shorter runs on its caller's thread: waking another one would take longer than that.
const SHORT: Duration = Duration::from_millis(1);

/// What the operator may set about the devices.
#[derive(Debug, Clone)]
pub struct DeviceConfig {
    /// Lanes of the CPU device; one per core when absent.
    pub cpu_lanes: Option<NonZeroUsize>,
    /// The most jobs that may wait for a device.
    pub queue: usize,
    /// The most bytes of all models in memory and all jobs that run, as they plan them.
    pub memory: u64,
    /// What a model may need.
    pub model: ModelLimits,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self { cpu_lanes: None, queue: 1024, memory: 4 << 30, model: ModelLimits::default() }
    }
}

/// How one inference is to be scheduled.
#[derive(Debug, Clone, Copy, Default)]
pub struct Job {
    pub class: Class,
    /// When nobody wants the answer any more.
    pub deadline: Option<Instant>,
}

/// The answer of one inference, and what it took.
#[derive(Debug)]
pub struct Inference {
    /// Named outputs, in the model's order.
    pub outputs: Vec<(String, Tensor)>,
    pub cost: Cost,
}

/// What one inference took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Time between asking for a lane and getting it.
    pub queued: Duration,
    /// Time that a lane was held.
    pub device: Duration,
    /// Operators run.
    pub operators: u64,
}

/// Counters since the start, and the state of the moment.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Graphs loaded.
    pub loads: u64,
    /// Graphs dropped after their last lease.
    pub unloads: u64,
    pub failed_loads: u64,
    /// Inferences that ended well.
    pub inferences: u64,
    /// Inferences that ended in an error.
    pub failed_inferences: u64,
    /// Operators run, those of cancelled jobs included.
    pub operators: u64,
    /// Bytes that models and jobs have planned, over all devices.
    pub memory: u64,
    pub devices: Vec<DeviceStats>,
    pub resident: Vec<ResidentGraph>,
}

/// The door. Cloning it gives another handle on the same devices.
#[derive(Clone)]
pub struct Service(Arc<Inner>);

struct Inner {
    backend: Tract,
    cpu: Device,
    residency: Arc<Residency>,
    /// Opens what tenants bring, before the engine here does.
    examiner: Arc<dyn Examiner>,
    memory: Arc<Memory>,
    /// Permits of graphs that are made ready for new shapes.
    preparations: Arc<Semaphore>,
    inferences: AtomicU64,
    failed_inferences: AtomicU64,
    operators: AtomicU64,
}

impl Service {
    pub fn new(config: &DeviceConfig, examiner: Arc<dyn Examiner>) -> Self {
        let cpu = device::cpu(config.cpu_lanes, config.queue);
        Self(Arc::new(Inner {
            backend: Tract { limits: config.model },
            examiner,
            memory: Memory::new(config.memory),
            preparations: Arc::new(Semaphore::new(cpu.stats().lanes)),
            cpu,
            residency: Arc::default(),
            inferences: AtomicU64::new(0),
            failed_inferences: AtomicU64::new(0),
            operators: AtomicU64::new(0),
        }))
    }

    /// Has a model examined, to learn its signature and what it needs where axes that vary have one element.
    ///
    /// # Errors
    /// What the engine has against it, or that it needs too much: see [`crate::examine`]; [`Error::Died`].
    pub async fn inspect(&self, model: &ModelSource) -> Result<Report, Error> {
        self.0.examiner.examine(model, None).await
    }

    /// Puts a model on a device, or finds it there. The graph stays while the lease lives. A model that this engine has
    /// not examined is examined first.
    ///
    /// # Errors
    /// [`Error::NoGpu`] for a GPU on a machine without one; what the engine has against the model.
    pub async fn load(&self, tenant: &str, model: &ModelSource, device: DeviceKind) -> Result<Lease, Error> {
        self.device(device)?;
        let key = Key { tenant: tenant.into(), digest: Arc::clone(&model.digest) };
        let load = || {
            let (inner, model) = (Arc::clone(&self.0), model.clone());
            let loading = async move {
                let memory = match model.examined {
                    Some(memory) => memory,
                    None => inner.examiner.examine(&model, None).await?.memory,
                };
                let reserved = inner.memory.reserve(memory)?;
                let loading = tokio::task::spawn_blocking(move || inner.load(model, memory, reserved));
                loading.await.unwrap_or_else(|error| Err(Error::from_join(error)))
            };
            loading.boxed()
        };
        self.0.residency.lease(key, load).await
    }

    /// Runs a graph once: checks the inputs, waits for a lane, runs. Dropping the future takes the job out of the
    /// queue, or stops it before its next operator.
    ///
    /// # Errors
    /// Inputs that do not fit the signature, a full queue, a passed deadline, or what went wrong in the engine.
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
        let inputs = lease.signature().order_inputs(inputs)?;
        let plan = match lease.resident().graph.ready(&inputs)? {
            Some(plan) => plan,
            None => {
                let preparing = self.prepare(Arc::clone(lease.resident()), &inputs);
                within(job.deadline, "preparing the graph for these shapes", preparing).await?
            }
        };
        let short = plan.steady().is_some_and(|took| took < SHORT);
        let asked = Instant::now();
        let lane = within(job.deadline, "waiting for a lane", self.0.cpu.lanes.acquire(job.class)).await?;
        let needed = plan.memory(&inputs).saturating_sub(lease.resident().memory);
        let reserved = self.0.memory.reserve(needed)?;
        let started = Instant::now();

        let gone = Gone::default();
        let (inner, flag) = (Arc::clone(&self.0), Arc::clone(&gone.0));
        let run = move || {
            let mut operators = 0;
            let mut checkpoint = || {
                if flag.load(Ordering::Relaxed) {
                    return Err(Error::Cancelled);
                }
                if job.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(Error::DeadlineExceeded("running".into()));
                }
                operators += 1;
                inner.operators.fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            let outputs = plan.run(inputs, &mut checkpoint);
            drop((lane, reserved));
            outputs.map(|outputs| (outputs, operators))
        };
        let (outputs, operators) = if short {
            catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(Error::from_panic(&*panic)))?
        } else {
            tokio::task::spawn_blocking(run).await.unwrap_or_else(|error| Err(Error::from_join(error)))?
        };
        let cost = Cost { queued: started - asked, device: started.elapsed(), operators };
        let names = lease.signature().outputs.iter().map(|spec| spec.name.clone());
        Ok(Inference { outputs: names.zip(outputs).collect(), cost })
    }

    /// Makes a graph ready for shapes that it has not seen, before it asks for a lane: one shape of a graph at a time,
    /// and as many at one time as there are lanes. A caller that leaves while it waits for its turn has no part in it;
    /// once begun it goes on, even if the caller leaves.
    async fn prepare(&self, resident: Arc<Resident>, inputs: &[Tensor]) -> Result<Arc<dyn Plan>, Error> {
        let turn = Arc::clone(&resident.preparing).lock_owned().await;
        // Whoever had the turn before may have wanted the same.
        if let Some(plan) = resident.graph.ready(inputs)? {
            return Ok(plan);
        }
        // Of the inputs only their shapes go on without the caller.
        let shapes = inputs.iter().map(|input| input.shape().to_vec()).collect();
        let inner = Arc::clone(&self.0);
        let prepared = tokio::spawn(async move {
            let plan = inner.prepare(resident, shapes).await;
            drop(turn);
            plan
        });
        prepared.await.unwrap_or_else(|error| Err(Error::from_join(error)))
    }

    /// Whether there is a device of this kind.
    ///
    /// # Errors
    /// [`Error::NoGpu`].
    pub fn has_device(&self, kind: DeviceKind) -> Result<(), Error> {
        self.device(kind).map(|_| ())
    }

    fn device(&self, kind: DeviceKind) -> Result<&Device, Error> {
        match kind {
            DeviceKind::Cpu => Ok(&self.0.cpu),
            DeviceKind::Gpu => Err(Error::NoGpu),
        }
    }

    pub fn stats(&self) -> Stats {
        let Inner { cpu, memory, residency, inferences, failed_inferences, operators, .. } = &*self.0;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            loads: read(&residency.loads),
            unloads: read(&residency.unloads),
            failed_loads: read(&residency.failed_loads),
            inferences: read(inferences),
            failed_inferences: read(failed_inferences),
            operators: read(operators),
            memory: memory.used(),
            devices: vec![cpu.stats()],
            resident: residency.resident(),
        }
    }
}

impl Inner {
    fn load(&self, model: ModelSource, memory: u64, reserved: Reserved) -> Result<Resident, Error> {
        let graph = self.backend.load(model.format, &model.read()?)?;
        Ok(Resident::new(graph, model, memory, reserved))
    }

    async fn prepare(&self, resident: Arc<Resident>, shapes: Shapes) -> Result<Arc<dyn Plan>, Error> {
        if resident.needs_examination(&shapes) {
            self.examiner.examine(&resident.model, Some(shapes.clone())).await?;
            resident.remember_examined(shapes.clone());
        }
        if resident.graph.made_per_shape() {
            resident.reserve(&self.memory)?;
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

/// A step of a job, up to the job's deadline.
async fn within<T>(
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

/// Tells a running job, when dropped, that nobody waits for it.
#[derive(Default)]
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
