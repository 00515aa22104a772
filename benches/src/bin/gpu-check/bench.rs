//! What a part works with: one device behind its door, and where its rows go.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::runtime::{Builder, Runtime};
use weir_gpu::{
    DeviceConfig, DeviceKind, DeviceStats, Error, GpuConfig, Inference, Job, Lease, ModelPolicy, ModelSource,
    SYSTEM, Service, TenantShare, Tensor,
};

use crate::part::Part;
use crate::report::{Row, Said, size};
use crate::{Asked, door};

/// The longest that a device may take to come to rest when nobody asks anything of it.
const REST: Duration = Duration::from_secs(10);

pub struct Bench {
    part: Part,
    pub kind: DeviceKind,
    models: PathBuf,
    runtime: Runtime,
}

/// The part that this process is. What it finds goes to stdout, as lines; an error is a row too.
pub fn work(part: Part, device: Asked, models: PathBuf) -> ExitCode {
    let kind = if device == Asked::Gpu { DeviceKind::Gpu } else { DeviceKind::Cpu };
    match Bench::new(part, kind, models) {
        Ok(bench) => bench.attempt("all of it", || part.run(&bench)),
        Err(error) => Said::Row(Row::failed(part.name(), "all of it", &format!("{error:#}"))).say(),
    }
    Said::Done.say();
    ExitCode::SUCCESS
}

impl Bench {
    fn new(part: Part, kind: DeviceKind, models: PathBuf) -> anyhow::Result<Self> {
        let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        Ok(Self { part, kind, models, runtime })
    }

    pub fn models(&self) -> &Path {
        &self.models
    }

    pub fn is_gpu(&self) -> bool {
        self.kind == DeviceKind::Gpu
    }

    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Does something meanwhile.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Something with a bound that is kept or not.
    pub fn judged(&self, what: &str, measured: String, bound: String, kept: bool) {
        Said::Row(Row::judged(self.part.name(), what, measured, bound, kept)).say();
    }

    /// Something that is told, and has no bound.
    pub fn told(&self, what: &str, measured: String) {
        self.judged(what, measured, "none: told".to_owned(), true);
    }

    pub fn failed(&self, what: &str, why: &str) {
        Said::Row(Row::failed(self.part.name(), what, why)).say();
    }

    pub fn not_run(&self, what: &str, why: &str) {
        Said::Row(Row::not_run(self.part.name(), what, why)).say();
    }

    /// Does something, whose error or panic is a row and the end of nothing else.
    pub fn attempt(&self, what: &str, work: impl FnOnce() -> anyhow::Result<()>) {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.failed(what, &format!("{error:#}")),
            Err(panic) => self.failed(what, &format!("panicked: {}", text_of(&*panic))),
        }
    }

    /// The device as it comes; the CPU with one lane.
    pub fn config(&self) -> DeviceConfig {
        let gpu = self.is_gpu().then(GpuConfig::default);
        DeviceConfig { gpu, ..door::one_lane() }
    }

    /// The device with no more memory than this.
    pub fn capped(&self, bytes: u64) -> DeviceConfig {
        let config = self.config();
        match self.kind {
            DeviceKind::Cpu => DeviceConfig { memory: bytes, ..config },
            DeviceKind::Gpu => {
                let gpu = GpuConfig { memory: Some(bytes), ..GpuConfig::default() };
                DeviceConfig { gpu: Some(gpu), ..config }
            }
        }
    }

    /// A tenant's share with this quota of the device's memory.
    pub fn share(&self, quota: Option<u64>) -> TenantShare {
        let share = TenantShare { queue: 100_000, ..TenantShare::default() };
        match self.kind {
            DeviceKind::Cpu => TenantShare { memory: quota, ..share },
            DeviceKind::Gpu => TenantShare { gpu_memory: quota, ..share },
        }
    }

    /// # Errors
    /// If it does not have the device.
    pub fn service(&self, config: &DeviceConfig) -> anyhow::Result<Service> {
        let service = door::service(config);
        service.has_device(self.kind)?;
        Ok(service)
    }

    /// A lease on the device that is looked at.
    pub fn load(&self, service: &Service, tenant: &str, model: &ModelSource) -> Result<Arc<Lease>, Error> {
        self.block_on(service.load(tenant, model, self.kind)).map(Arc::new)
    }

    pub fn infer(
        &self,
        service: &Service,
        lease: &Lease,
        input: &Tensor,
        job: Job,
    ) -> Result<Inference, Error> {
        self.block_on(door::infer(service, lease, input, job))
    }

    /// The device that is looked at, as it is now.
    pub fn device(&self, service: &Service) -> anyhow::Result<DeviceStats> {
        let mut devices = service.stats().devices.into_iter();
        devices.find(|device| device.kind == self.kind).context("the service does not tell of the device")
    }

    /// The device when nothing runs on it and nothing waits.
    ///
    /// # Errors
    /// If that does not come to be, though nobody asks anything of it any more.
    pub fn at_rest(&self, service: &Service) -> anyhow::Result<DeviceStats> {
        let until = Instant::now() + REST;
        loop {
            let device = self.device(service)?;
            let activations: u64 = device.memory.accounts.iter().map(|account| account.activations).sum();
            if (device.busy, device.queued, device.suspended, activations) == (0, 0, 0, 0) {
                return Ok(device);
            }
            let (busy, queued, suspended) = (device.busy, device.queued, device.suspended);
            ensure!(
                Instant::now() < until,
                "the device does not come to rest: {busy} run, {queued} wait, {suspended} made way, {activations} B"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Has all models go that nobody holds, from all memories, and waits until they have.
    ///
    /// # Errors
    /// If one stays.
    pub fn unload(&self, service: &Service) -> anyhow::Result<()> {
        let until = Instant::now() + REST;
        loop {
            let resident = service.stats().resident;
            if resident.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < until, "{} graphs stay in memory", resident.len());
            for graph in resident {
                let policy = ModelPolicy { public: *graph.owner == *SYSTEM, ..ModelPolicy::default() };
                let model = door::model(&graph.digest, vec![], policy.clone());
                service.keep(&graph.owner, &model, &policy);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// [`Part::Start`]: whether there is a GPU.
    ///
    /// # Errors
    /// What the driver does not say.
    pub fn start(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let service = door::service(&self.config());
        if let Some(reason) = service.no_gpu() {
            Said::NoGpu(reason.to_owned()).say();
            return Ok(());
        }
        let took = began.elapsed().as_secs_f64();
        let device = self.device(&service)?;
        let driver = device.driver.context("the driver says nothing of its memory")?;
        let (total, free) = (size(driver.total), size(driver.free));
        let measured = format!("{} started in {took:.1} s; {free} of {total} are free", device.name);
        self.told("a GPU on this machine", measured);
        Ok(())
    }
}

/// Bytes that a device's books have for graphs and jobs. What they have in reserve is nobody's tensors.
pub fn planned(device: &DeviceStats) -> u64 {
    device.memory.accounts.iter().map(|account| account.weights.saturating_add(account.activations)).sum()
}

/// Bytes that the driver's allocator says are in use, if there is a driver.
pub fn pool_used(device: &DeviceStats) -> Option<u64> {
    device.driver.as_ref().map(|driver| driver.pool_used)
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
