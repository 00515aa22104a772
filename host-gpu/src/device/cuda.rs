//! One NVIDIA GPU, through the engine's CUDA operators: one context for all tenants, a stream for each thread.
//!
//! The engine keeps a context for the process and a stream, with handles of cuBLAS and cuDNN, for each thread that it is
//! called on. So all that touches the device runs on the threads that are started here, as many as jobs can have begun
//! and graphs be loaded at one time, and on no other: no stream is made after the start.
//!
//! Tensors come from the driver's own pool, in the order of a stream, and go back to it. What the pool says is in use is
//! what the [`Ledger`](crate::quota::Ledger) is held against.
//!
//! Kernels are not checked the way that operators on the CPU are; `guard.rs` says which may run here.

#![allow(unsafe_code)]

mod guard;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use cudarc::driver::{CudaContext, DriverError, result, sys};
use tokio::runtime::{Builder, Runtime};
use tract_cuda::{CudaTransform, utils::ensure_cuda_runtime_dependencies, with_cuda_stream};
use tract_gpu::fact::DeviceTypedFactExt;
use tract_gpu::rewrite_rules::rewire_syncs::rewire_syncs;
use tract_gpu::sync::DeviceSync;
use tract_onnx::prelude::{IntoTensor, TValue, TractError, TypedModel};
use tract_onnx::tract_core::knobs::KnobScope;
use tract_onnx::tract_core::model::translator::Translate;
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_core::ops::source::TypedSource;

use self::guard::Place;
use super::{DriverMemory, GpuConfig, Hardware};
use crate::Error;
use crate::backend::Accelerator;
/// Threads beside those of jobs: one loads graphs, one prepares them for shapes.
const LOADERS: usize = 2;

/// The part of the device's memory that the driver's pool may keep when nothing is in it, rather than give it back.
const POOL_KEEPS: u64 = 16;

/// What the engine is told not to have on the device: nodes with this in their names.
const ON_CPU: &str = "weir.on-cpu";

/// How the engine calls that setting.
const FORCE_CPU: &str = "TRACT_CUDA_FORCE_CPU";

/// The engine's name for what is done of a translation before it comes to single operators.
const BEFORE_OPERATORS: usize = 1;

/// What its failed allocations say.
const OUT_OF_MEMORY: [&str; 2] = ["OUT_OF_MEMORY", "ALLOC_FAILED"];

pub(crate) struct Cuda {
    threads: Threads,
    context: Arc<CudaContext>,
    /// The driver's pool, if the device has one.
    pool: Option<Pool>,
    /// Bytes that were in use when all was started, by whomever.
    taken: u64,
    outstanding: usize,
    failed: AtomicBool,
}

/// The device's threads. Those that still do something when this is dropped end by themselves: whoever drops it may not be
/// one that can wait.
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

/// The driver's default pool of the device, which is there as long as the process is.
struct Pool(sys::CUmemoryPool);

// SAFETY: the handle names a pool of the driver's, whose functions may be called from any thread.
unsafe impl Send for Pool {}
// SAFETY: as above; the driver does its own locking.
unsafe impl Sync for Pool {}

impl Cuda {
    /// Starts the device: the context, the threads, and the engine's kernels, which are compiled when this machine has
    /// not done so before. Takes seconds, the first time minutes.
    ///
    /// # Errors
    /// What is missing, or does not work: a sentence.
    pub fn start(config: &GpuConfig) -> Result<Arc<Self>, String> {
        let check = || ensure_cuda_runtime_dependencies("a GPU device").map_err(|error| format!("{error:#}"));
        caught(check)?;
        let count = config.lanes.get().saturating_add(config.suspended).saturating_add(LOADERS);
        let threads = Builder::new_current_thread()
            .thread_name("gpu")
            .max_blocking_threads(count)
            .thread_keep_alive(Duration::from_secs(u64::from(u32::MAX)))
            .build()
            .map_err(|error| format!("no threads for the GPU: {error}"))?;
        let threads = Threads(Some(threads));
        let (sender, contexts) = mpsc::channel();
        let all = Arc::new(Barrier::new(count));
        for _ in 0..count {
            let (sender, all) = (sender.clone(), Arc::clone(&all));
            let work = move || {
                let context = || with_cuda_stream(|stream| Ok(Arc::clone(stream.context())));
                let context = caught(|| context().map_err(|error| format!("{error:#}")));
                // None gets a second one of these before each has had one.
                all.wait();
                let _ = sender.send(context);
            };
            if let Some(threads) = &threads.0 {
                drop(threads.spawn_blocking(work));
            }
        }
        drop(sender);
        let contexts = contexts.iter().collect::<Result<Vec<_>, String>>()?;
        let context = contexts.into_iter().next().ok_or("no thread of the GPU has started")?;
        let pool = Pool::of(&context).map_err(|error| format!("the driver's pool: {error}"))?;
        let (free, total) = context.mem_get_info().map_err(|error| error.to_string())?;
        Ok(Arc::new(Self {
            threads,
            context,
            pool,
            taken: wide(total).saturating_sub(wide(free)),
            outstanding: config.outstanding.get(),
            failed: AtomicBool::new(false),
        }))
    }

    fn read_memory(&self) -> Option<DriverMemory> {
        self.forget_errors();
        let (free, total) = self.context.mem_get_info().ok()?;
        let pool = self.pool.as_ref();
        let read = |attribute| pool.map_or(Some(0), |pool| pool.read(attribute).ok());
        Some(DriverMemory {
            total: wide(total),
            free: wide(free),
            pool_used: read(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            pool_reserved: read(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            context: self.taken,
        })
    }

    /// What could not be given back is told to whoever asks the driver for something next, which may be another tenant's
    /// job. It is nobody's.
    fn forget_errors(&self) {
        if let Err(error) = self.context.check_err() {
            tracing::warn!(%error, "the driver could not take something back");
        }
    }

    /// An error of the driver's, which may mean the end of the context: then all that is asked of it fails.
    fn error(&self, error: &TractError) -> Error {
        self.forget_errors();
        // Once more, lest it be what another thread has just failed to give back.
        if self.context.mem_get_info().is_err() && self.context.mem_get_info().is_err() {
            if !self.failed.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, "the GPU's context is broken: restart the server");
            }
            return Error::DeviceFailed { device: super::GPU.to_owned() };
        }
        let text = format!("{error:#}");
        let memory = self.of_failure(&text, 0);
        memory.unwrap_or_else(|| Error::Engine(text.chars().take(400).collect()))
    }
}

impl Hardware for Cuda {
    fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> Result<(), Error> {
        let threads = self.threads.0.as_ref().ok_or(Error::Cancelled)?;
        self.forget_errors();
        drop(threads.spawn_blocking(work));
        Ok(())
    }

    fn memory(&self) -> Option<DriverMemory> {
        self.read_memory()
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

impl Pool {
    /// The device's pool, told to keep some memory between runs.
    fn of(context: &CudaContext) -> Result<Option<Self>, DriverError> {
        if !context.has_async_alloc() {
            return Ok(None);
        }
        context.bind_to_thread()?;
        let mut keeps = wide(context.total_mem()?) / POOL_KEEPS;
        // SAFETY: the device is that of a live context.
        let pool = unsafe { result::device::get_default_mem_pool(context.cu_device())? };
        // SAFETY: the pool is the device's default one; the value of this attribute is a u64, which is read before the
        // call returns.
        unsafe {
            let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            result::mem_pool::set_attribute(pool, attribute, (&raw mut keeps).cast::<c_void>())?;
        }
        Ok(Some(Self(pool)))
    }

    /// One of the pool's counts of bytes.
    fn read(&self, attribute: sys::CUmemPool_attribute) -> Result<u64, DriverError> {
        let mut bytes = 0_u64;
        // SAFETY: the pool is the device's default one; the attributes that are asked for are u64.
        unsafe { result::mem_pool::get_attribute(self.0, attribute, (&raw mut bytes).cast::<c_void>())? };
        Ok(bytes)
    }
}

impl Accelerator for Cuda {
    fn translate(&self, mut model: TypedModel) -> Result<TypedModel, Error> {
        // All that the engine does before it takes operators to the device, one by one. What it does after that would run
        // operators on constants, and make one operator of several: it is left out, and so is nothing run here that has
        // not been looked at.
        CudaTransform
            .transform_up_to_phase(&mut model, BEFORE_OPERATORS)
            .map_err(|error| self.error(&error))?;
        let places = guard::places(&model)?;
        for (id, (node, place)) in model.nodes.iter_mut().zip(places).enumerate() {
            if place == Place::Cpu {
                node.name = format!("{ON_CPU}.{id}.{}", node.name);
            }
        }
        let translate = || {
            let scope = KnobScope::new([(FORCE_CPU, ON_CPU)])?;
            scope.enter(|| CudaTransform.translate_model(&model))
        };
        let mut model = translate().map_err(|error| self.error(&error))?;
        are_known(&model)?;
        let optimize = |model: &mut TypedModel| {
            rewire_syncs(model)?;
            model.optimize()
        };
        optimize(&mut model).map_err(|error| self.error(&error))?;
        are_known(&model)?;
        // The constants are on their way on this thread's stream; others' will read them.
        self.synchronize()?;
        Ok(model)
    }

    fn host_operators(&self, model: &TypedModel) -> Vec<String> {
        let here = model.nodes().iter().filter(|node| {
            !is_there(node)
                && !node.op_is::<Const>()
                && !node.op_is::<TypedSource>()
                && !node.op_is::<DeviceSync>()
        });
        let prefix = format!("{ON_CPU}.");
        here.map(|node| {
            let name = node.name.strip_prefix(&prefix).and_then(|name| name.split_once('.'));
            format!("{} {}", node.op.name(), name.map_or(&*node.name, |(_, name)| name))
        })
        .collect()
    }

    fn check(&self, model: &TypedModel, node: &guard::Node, inputs: &[TValue]) -> Result<(), Error> {
        if !is_there(node) {
            return Ok(());
        }
        let facts = model.node_input_facts(node.id).map_err(|error| self.error(&error))?;
        if facts.len() == inputs.len()
            && inputs.iter().zip(facts).all(|(value, fact)| guard::fits(value, fact))
        {
            return Ok(());
        }
        Err(Error::Engine(format!("operator `{}` is given what it was not prepared for", node.name)))
    }

    fn enter(&self) {
        if let Err(error) = self.context.bind_to_thread() {
            tracing::warn!(%error, "the context is not to be had");
        }
    }

    fn outstanding(&self) -> usize {
        self.outstanding
    }

    fn synchronize(&self) -> Result<(), Error> {
        with_cuda_stream(|stream| Ok(stream.synchronize()?)).map_err(|error| self.error(&error))
    }

    fn bring_back(&self, value: TValue) -> Result<TValue, TractError> {
        let mut tensor = value.into_tensor();
        // Asked for as something to be written to, it comes to the host for good and leaves the device.
        tensor.try_as_plain_ram_mut()?;
        Ok(tensor.into())
    }

    fn of_failure(&self, text: &str, bytes: u64) -> Option<Error> {
        if !OUT_OF_MEMORY.iter().any(|said| text.contains(said)) {
            return None;
        }
        let memory = self.memory()?;
        let used = memory.total.saturating_sub(memory.free);
        Some(Error::DeviceMemory { requested: bytes, used, limit: memory.total })
    }
}

/// Whether a node runs on the device.
fn is_there(node: &guard::Node) -> bool {
    if node.op_is::<Const>() || node.op_is::<TypedSource>() || node.op_is::<DeviceSync>() {
        return false;
    }
    let name = node.op.name();
    let is_called_so = name.starts_with("Cuda") || name.starts_with("Gpu");
    is_called_so || node.outputs.iter().any(|output| output.fact.as_device_fact().is_some())
}

fn are_known(model: &TypedModel) -> Result<(), Error> {
    match model.nodes().iter().find(|node| is_there(node) && !guard::is_known(&node.op.name())) {
        Some(node) => {
            Err(Error::NotOnGpu(format!("operator `{}` is not known to be safe there", node.op.name())))
        }
        None => Ok(()),
    }
}

/// What a call of the engine's comes to, if it may panic.
fn caught<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(Error::from_panic(&*panic).to_string()))
}

fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
