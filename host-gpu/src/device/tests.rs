//! A device with memory and threads of its own, played by the cores: what is ours of a GPU is tested here, without one.

use super::*;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tract_onnx::prelude::{Node as Untyped, TValue, TractResult, TypedModel};
use tract_onnx::tract_core::internal::{TypedFact, TypedOp};

use crate::backend::Accelerator;
use crate::model::Format;
use crate::quota::SYSTEM;
use crate::service::{Inference, Job, Service};
use crate::tensor::Dtype;
use crate::{InProcess, Lease};

#[allow(dead_code)]
#[path = "../../tests/suite/onnx.rs"]
mod onnx;

type Node = Untyped<TypedFact, Box<dyn TypedOp>>;

const MIB: u64 = 1 << 20;
const THREADS: &str = "played gpu";

/// What the device was asked, in order, all of it on its own threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Translate,
    Synchronize,
    BringBack,
}

struct Played {
    threads: Option<Runtime>,
    asked: Mutex<Vec<Asked>>,
    memory: Mutex<DriverMemory>,
    failed: Mutex<bool>,
    /// Inputs of operators that were looked at, and times that a thread was told to be about to let go of a plan.
    checked: Mutex<usize>,
    entered: Mutex<usize>,
}

impl Played {
    fn new() -> Arc<Self> {
        let memory = DriverMemory {
            total: 1000 * MIB,
            free: 900 * MIB,
            pool_used: 0,
            pool_reserved: 0,
            context: 100 * MIB,
        };
        let threads =
            Builder::new_current_thread().thread_name(THREADS).max_blocking_threads(6).build().unwrap();
        let (asked, failed, checked, entered) = Default::default();
        Arc::new(Self { threads: Some(threads), asked, memory: Mutex::new(memory), failed, checked, entered })
    }

    fn ask(&self, what: Asked) {
        assert_eq!(thread::current().name(), Some(THREADS));
        self.asked.lock().unwrap().push(what);
    }

    /// What the driver says from now on.
    fn says(&self, change: impl FnOnce(&mut DriverMemory)) {
        change(&mut self.memory.lock().unwrap());
    }

    fn count(&self, what: Asked) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| **asked == what).count()
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

impl Hardware for Played {
    fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> Result<(), Error> {
        drop(self.threads.as_ref().unwrap().spawn_blocking(work));
        Ok(())
    }

    fn memory(&self) -> Option<DriverMemory> {
        Some(*self.memory.lock().unwrap())
    }

    fn has_failed(&self) -> bool {
        *self.failed.lock().unwrap()
    }
}

impl Accelerator for Played {
    fn translate(&self, mut model: TypedModel) -> Result<TypedModel, Error> {
        self.ask(Asked::Translate);
        model.optimize().unwrap();
        Ok(model)
    }

    fn host_operators(&self, model: &TypedModel) -> Vec<String> {
        model.nodes().iter().filter(|node| node.op.name() == "Tanh").map(|node| node.name.clone()).collect()
    }

    fn check(&self, _: &TypedModel, _: &Node, inputs: &[TValue]) -> Result<(), Error> {
        *self.checked.lock().unwrap() += inputs.len();
        Ok(())
    }

    fn enter(&self) {
        *self.entered.lock().unwrap() += 1;
    }

    fn outstanding(&self) -> usize {
        2
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.ask(Asked::Synchronize);
        Ok(())
    }

    fn bring_back(&self, value: TValue) -> TractResult<TValue> {
        self.ask(Asked::BringBack);
        Ok(value)
    }

    fn of_failure(&self, _: &str, _: u64) -> Option<Error> {
        None
    }
}

fn config() -> DeviceConfig {
    let tenant = crate::TenantShare { gpu_memory: Some(500 * MIB), ..crate::TenantShare::default() };
    DeviceConfig { memory: 100 * MIB, tenant, ..DeviceConfig::default() }
}

/// The cores, and the device that they play.
fn service() -> (Service, Arc<Played>) {
    let (config, played) = (config(), Played::new());
    let examiner: Arc<dyn Examiner> = Arc::new(InProcess(config.model));
    let backend = Tract { limits: config.model, accelerator: Some(Arc::clone(&played) as _) };
    let (gpu, hardware) = (GpuConfig::default(), Arc::clone(&played));
    let gpu =
        Device::with_memory_of_its_own(&config, &gpu, Box::new(backend), hardware, Arc::clone(&examiner));
    (Service::of(Device::cpu(&config, examiner), gpu), played)
}

fn model(bytes: Vec<u8>) -> ModelSource {
    let model = ModelSource::from_memory("digest", Format::Onnx, bytes.into());
    let policy = ModelPolicy { host_keep_alive: Duration::from_secs(3600), ..ModelPolicy::default() };
    ModelSource { policy, ..model }
}

async fn run(service: &Service, lease: &Lease, rows: usize, width: usize) -> Result<Inference, Error> {
    let data = (0..rows * width).flat_map(|place| (place as f32 / 10.0).to_le_bytes()).collect::<Vec<_>>();
    let tensor = Tensor::new(Dtype::F32, vec![rows, width], data.into()).unwrap();
    service.infer(lease, vec![("x".to_owned(), tensor)], Job::default()).await
}

/// Bytes on an account of a device: weights, activations, reserve.
fn account(service: &Service, device: usize, tenant: &str) -> (u64, u64, u64) {
    let stats = service.stats();
    let account = stats.devices[device].memory.accounts.iter().find(|account| *account.tenant == *tenant);
    account.map_or((0, 0, 0), |account| (account.weights, account.activations, account.reserve))
}

#[tokio::test]
async fn both_devices_answer_alike_and_each_keeps_its_own_books() {
    let (service, played) = service();
    let model = model(onnx::product("n", 64));
    let here = service.load("t", &model, DeviceKind::Cpu).await.unwrap();
    let there = service.load("t", &model, DeviceKind::Gpu).await.unwrap();
    assert_eq!((here.device(), there.device()), (CPU, GPU));
    assert_eq!(here.signature(), there.signature());
    for rows in [1, 3] {
        let one = run(&service, &here, rows, 64).await.unwrap();
        let other = run(&service, &there, rows, 64).await.unwrap();
        assert_eq!(one.outputs, other.outputs);
        assert_eq!(one.cost.used.operators, other.cost.used.operators);
    }
    assert_eq!(played.count(Asked::BringBack), 2);
    let stats = service.stats();
    let resident: Vec<_> = stats.resident.iter().map(|graph| (&*graph.device, graph.waits)).collect();
    assert_eq!(resident, [(CPU, false), (CPU, true), (GPU, false)]);
    let (weights, activations, _) = account(&service, 1, "t");
    assert!(weights >= 64 * 64 * 4 && activations == 0, "{weights}, {activations}");
    assert!(stats.devices[1].device_time.contains_key("t") && stats.devices[0].device_time.contains_key("t"));
}

#[tokio::test]
async fn a_model_that_left_the_device_comes_back_from_host_memory() {
    let (service, played) = service();
    let model = model(onnx::product("n", 64));
    let lease = service.load("t", &model, DeviceKind::Gpu).await.unwrap();
    run(&service, &lease, 1, 64).await.unwrap();
    drop(lease);
    assert_eq!(account(&service, 1, "t").0, 0, "it has left the device");
    assert!(account(&service, 0, "t").0 > 0, "it waits in host memory");
    // What it was read from is not needed any more.
    let unreadable =
        ModelSource { bytes: crate::ModelBytes::File("nowhere".into()), examined: Some(MIB), ..model };
    let lease = service.load("t", &unreadable, DeviceKind::Gpu).await.unwrap();
    run(&service, &lease, 1, 64).await.unwrap();
    assert_eq!(played.count(Asked::Translate), 2);
    assert_eq!(*played.entered.lock().unwrap(), 1, "the plan that has gone");
    assert!(*played.checked.lock().unwrap() > 0);
    drop(lease);
    service.keep("t", &unreadable, &ModelPolicy::default());
    assert!(service.stats().resident.is_empty(), "one that is deleted is nowhere");
    assert!(service.load("t", &unreadable, DeviceKind::Gpu).await.is_err());
    assert_eq!(account(&service, 0, "t"), (0, 0, 0));
    assert_eq!(account(&service, 1, "t"), (0, 0, 0));
}

#[tokio::test]
async fn what_waits_in_host_memory_makes_room_there() {
    let (service, _) = service();
    let waiting = ModelSource { examined: Some(60 * MIB), ..model(onnx::product("n", 64)) };
    drop(service.load("t", &waiting, DeviceKind::Gpu).await.unwrap());
    assert_eq!(service.stats().resident.len(), 1);
    let bytes = onnx::product("n", 8);
    let other = ModelSource { digest: "other".into(), examined: Some(100 * MIB), ..model(bytes) };
    let _lease = service.load("u", &other, DeviceKind::Cpu).await.unwrap();
    let stats = service.stats();
    assert_eq!(stats.evictions, 1);
    assert!(stats.resident.iter().all(|graph| &*graph.digest == "other"));
}

#[tokio::test]
async fn the_host_is_ahead_of_the_device_within_a_bound_and_never_when_a_run_is_left() {
    let (service, played) = service();
    let lease = service.load("t", &model(onnx::product("n", 64)), DeviceKind::Gpu).await.unwrap();
    let before = played.count(Asked::Synchronize);
    let operators = run(&service, &lease, 1, 64).await.unwrap().cost.used.operators;
    let synchronized = played.count(Asked::Synchronize) - before;
    let ahead = u64::try_from(played.outstanding()).unwrap();
    assert!(u64::try_from(synchronized).unwrap() >= operators / ahead, "{synchronized} for {operators}");
    // A run that fails in the middle, of its tenant's quota.
    service.set_tenant("t", crate::TenantShare { gpu_memory: Some(1), ..crate::TenantShare::default() });
    let failed = run(&service, &lease, 1, 64).await.unwrap_err();
    assert!(matches!(failed, Error::TenantMemory { .. }), "{failed}");
    assert_eq!(played.asked.lock().unwrap().last(), Some(&Asked::Synchronize));
}

#[tokio::test]
async fn the_system_has_what_the_driver_says_that_nobody_has_planned() {
    let (service, played) = service();
    let part = 900 * MIB - 900 * MIB / 20;
    let left = 900 * MIB - part;
    assert_eq!(account(&service, 1, SYSTEM).2, 100 * MIB + left, "the context, and what is left free");
    let lease = service.load("t", &model(onnx::product("n", 64)), DeviceKind::Gpu).await.unwrap();
    let (weights, ..) = account(&service, 1, "t");
    // The pool has the weights, and 5 MiB of an engine's workspace; it has kept 3 MiB more.
    played.says(|memory| {
        memory.free = 900 * MIB - weights - 8 * MIB;
        memory.pool_used = weights + 5 * MIB;
        memory.pool_reserved = weights + 8 * MIB;
    });
    assert_eq!(account(&service, 1, SYSTEM).2, 105 * MIB + left);
    let stats = service.stats();
    let memory = &stats.devices[1].memory;
    assert_eq!(memory.used, memory.accounts.iter().map(crate::AccountStats::total).sum::<u64>());
    assert!(memory.used <= memory.capacity);
    // Somebody else has taken nearly all: there is no room for a model that the books alone would have room for.
    played.says(|memory| memory.free = MIB);
    let large =
        ModelSource { digest: "large".into(), examined: Some(20 * MIB), ..model(onnx::product("n", 8)) };
    let refused = service.load("u", &large, DeviceKind::Gpu).await.unwrap_err();
    assert!(matches!(refused, Error::DeviceMemory { .. }), "{refused}");
    drop(lease);
}

#[tokio::test]
async fn a_device_that_has_failed_says_so_and_the_other_goes_on() {
    let (service, played) = service();
    let model = model(onnx::product("n", 64));
    let there = service.load("t", &model, DeviceKind::Gpu).await.unwrap();
    *played.failed.lock().unwrap() = true;
    let failed = Error::DeviceFailed { device: GPU.to_owned() };
    assert_eq!(run(&service, &there, 1, 64).await.unwrap_err(), failed);
    assert_eq!(service.load("t", &model, DeviceKind::Gpu).await.unwrap_err(), failed);
    assert!(service.stats().devices[1].failed);
    let here = service.load("t", &model, DeviceKind::Cpu).await.unwrap();
    run(&service, &here, 1, 64).await.unwrap();
}

#[tokio::test]
async fn what_a_device_cannot_run_is_refused_when_it_is_loaded() {
    let (service, _) = service();
    let by_data = onnx::Graph::default()
        .input("x", onnx::DataType::Int64, &["n"])
        .node("NonZero", &["x"], "y")
        .output("y", onnx::DataType::Int64, &["1", "m"]);
    let refused = service.load("t", &model(by_data.bytes()), DeviceKind::Gpu).await.unwrap_err();
    assert!(refused.to_string().contains("depend on data"), "{refused}");
    let tanh = ModelSource { digest: "tanh".into(), ..model(onnx::tanh(&["n", "8"])) };
    let lease = service.load("t", &tanh, DeviceKind::Gpu).await.unwrap();
    let stats = service.stats();
    let there = stats.resident.iter().find(|graph| &*graph.device == GPU).unwrap();
    assert_eq!(there.host_operators.len(), 1, "{:?}", there.host_operators);
    drop(lease);
    assert_eq!(account(&service, 1, "t"), (0, 0, 0));
}

#[test]
fn a_machine_without_a_gpu_says_what_it_lacks() {
    let config = config();
    let folder = tempfile::tempdir().unwrap();
    let folders = GpuFolders { root: folder.path().to_owned(), libraries: vec![], toolkits: vec![] };
    let gpu = GpuConfig { only_with: Some(folders), ..GpuConfig::default() };
    let examiner = Arc::new(InProcess(config.model));
    let reason = Device::gpu(&config, &gpu, examiner.clone()).unwrap_err();
    assert!(reason.contains("libcuda.so.1") || reason.contains("no CUDA device"), "{reason}");
    let service = Service::new(&config, examiner);
    assert_eq!(service.has_device(DeviceKind::Gpu), Err(Error::NoGpu));
    assert_eq!(service.no_gpu(), Some("it is turned off"));
}
