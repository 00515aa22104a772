//! `wasi:nn` as guests see it: checks, converts, and submits to the door of `weir-gpu`.
//!
//! Models are named and host-held: a guest gets those that its function's configuration names, and its own bytes
//! only where the configuration allows them. A tensor is a resource whose bytes stay on the host until the guest
//! asks for them, so that chained graphs copy nothing. A guest's handle on a graph is what holds the graph in memory; how
//! long it stays there after the last one is the model's own policy. Loading and computing are async: a waiting guest holds no
//! thread. Errors are resources with a code and a sentence.
//!
//! `wasi:nn` has no boolean type: models' boolean inputs and outputs are `u8` here, 0 or 1.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use weir_gpu::{Class, DeviceKind, Dtype, Format, Job, Lease, ModelSource, Service, Tensor};

use super::memory::{Account, Held};
use super::met::Met;
use super::meter::Meter;
use super::store::Host;
use crate::function::Isolation;
use crate::limits::{Exceeded, Limit};
use crate::meter::bill::Bill;
use crate::model::Models;
use crate::telemetry::Telemetry;

mod bindings {
    wasmtime::component::bindgen!({
        path: "../wit/deps/nn.wit",
        world: "ml",
        imports: {
            "wasi:nn/graph.load": async | trappable,
            "wasi:nn/graph.load-by-name": async | trappable,
            "wasi:nn/inference.[method]graph-execution-context.compute": async | trappable,
            default: trappable,
        },
        with: {
            "wasi:nn/graph.graph": super::Graph,
            "wasi:nn/tensor.tensor": super::GuestTensor,
            "wasi:nn/inference.graph-execution-context": super::Session,
            "wasi:nn/errors.error": super::Error,
        },
    });
}

use bindings::wasi::nn::{errors, graph, inference, tensor};
use errors::ErrorCode;
use graph::{ExecutionTarget, GraphEncoding};
use tensor::TensorType;

/// The models that the sandboxes of one awake revision may use, and how they are run for it.
pub struct ModelAccess {
    pub tenant: Arc<str>,
    /// Names that the function's configuration allows.
    pub names: BTreeSet<String>,
    /// Whether a guest may load bytes of its own.
    pub own_bytes: bool,
    /// Where models are to run.
    pub device: DeviceKind,
    pub class: Class,
    /// Whether its inferences ride with no other.
    pub alone: bool,
    /// How long one inference may wait for a lane.
    pub queue_timeout: Option<Duration>,
    /// How long one inference may take.
    pub inference_timeout: Option<Duration>,
    pub models: Arc<Models>,
    pub service: Service,
    pub telemetry: Arc<Telemetry>,
    loading: AtomicU64,
}

impl ModelAccess {
    pub fn new(
        tenant: Arc<str>,
        config: &crate::function::FunctionConfig,
        models: Arc<Models>,
        service: Service,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self {
            tenant,
            names: config.models.iter().cloned().collect(),
            own_bytes: config.allow_model_bytes,
            device: config.device.into(),
            class: config.class.unwrap_or_default().into(),
            alone: config.isolation == Isolation::DedicatedBatch,
            queue_timeout: config.queue_timeout,
            inference_timeout: config.inference_timeout,
            models,
            service,
            telemetry,
            loading: AtomicU64::new(0),
        }
    }

    /// Nanoseconds that the graphs which guests have asked for took to load.
    pub fn loading(&self) -> u64 {
        self.loading.load(Ordering::Relaxed)
    }

    /// The graph of a named model: a look-up, where it is in memory.
    async fn open(&self, name: &str, meter: &Meter, bill: Option<&Arc<Bill>>) -> Result<Opened, Error> {
        // A guest's name may be as long as its memory.
        let name = &*name.chars().take(LONGEST_NAME).collect::<String>();
        if !self.names.contains(name) {
            let allowed: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
            let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
            return Err(Error::new(
                ErrorCode::Security,
                format!("the function's configuration does not allow model `{name}`; it allows {allowed}"),
            ));
        }
        let model = self
            .models
            .find(&self.tenant, name)
            .ok_or_else(|| Error::new(ErrorCode::NotFound, format!("there is no model `{name}`")))?;
        let name = self.names.get(name).map(|name| Arc::from(name.as_str())).unwrap_or_default();
        meter.unmetered(self.load(&model.source, name, self.device, bill)).await
    }

    /// `model` is its name, or nothing for a guest's own bytes.
    async fn load(
        &self,
        source: &ModelSource,
        model: Arc<str>,
        device: DeviceKind,
        bill: Option<&Arc<Bill>>,
    ) -> Result<Opened, Error> {
        let name = self.service.device_name(device)?.into();
        let tab = bill.map(|bill| bill.tab(&name, &model)).unwrap_or_default();
        let asked = Instant::now();
        let lease = self.service.load_on(&self.tenant, source, device, &tab).await;
        if let Some(bill) = bill {
            bill.waited_for_graph(&name, &model, asked.elapsed());
        }
        let lease = lease?;
        if let Some(took) = lease.load_time() {
            self.loading.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            self.telemetry.cold_start_graph(took);
        }
        Ok(Opened { lease, model, device: name })
    }

    /// A graph from a guest's own bytes, where the configuration allows that.
    async fn load_bytes(
        &self,
        builders: Vec<Vec<u8>>,
        encoding: GraphEncoding,
        target: ExecutionTarget,
        meter: &Meter,
        bill: Option<&Arc<Bill>>,
    ) -> Result<Graph, Error> {
        if !self.own_bytes {
            return Err(Error::new(
                ErrorCode::Security,
                "the function's configuration does not allow models of its own bytes: upload the model and open it \
                 by name, or set `allow_model_bytes`",
            ));
        }
        let format = match encoding {
            GraphEncoding::Onnx | GraphEncoding::Autodetect => Format::Onnx,
            other => {
                let name = format!("{other:?}").to_lowercase();
                let name = name.rsplit("::").next().unwrap_or(&name).to_owned();
                return Err(weir_gpu::Error::UnsupportedFormat(name).into());
            }
        };
        let device = match target {
            ExecutionTarget::Cpu => DeviceKind::Cpu,
            ExecutionTarget::Gpu => DeviceKind::Gpu,
            ExecutionTarget::Tpu => {
                return Err(Error::new(
                    ErrorCode::UnsupportedOperation,
                    "there is no TPU here: ask for `cpu`",
                ));
            }
        };
        let [bytes] = <[Vec<u8>; 1]>::try_from(builders).map_err(|given| {
            Error::new(
                ErrorCode::InvalidArgument,
                format!("an ONNX model is one list of bytes, given {}", given.len()),
            )
        })?;
        // Before the bytes are looked at, which takes a while.
        self.service.has_device(device)?;
        let bytes = Bytes::from(bytes);
        let hash = {
            let bytes = bytes.clone();
            move || hex::encode(Sha256::digest(&bytes))
        };
        let digest = tokio::task::spawn_blocking(hash)
            .await
            .map_err(|_| Error::new(ErrorCode::RuntimeError, "the server could not read the model"))?;
        let source = ModelSource::from_memory(&digest, format, bytes);
        Ok(Graph(Arc::new(meter.unmetered(self.load(&source, Arc::default(), device, bill)).await?)))
    }

    /// One inference, from a guest's tensors to tensors.
    async fn compute(
        &self,
        Opened { lease, model, device }: &Opened,
        inputs: &[(String, GuestTensor)],
        deadline: Option<Instant>,
        meter: &Meter,
        bill: Option<&Arc<Bill>>,
    ) -> Result<Vec<(String, Tensor)>, Error> {
        let signature = lease.signature();
        // Before the run, so that a result that nobody can read costs no device time.
        if let Some(output) = signature.outputs.iter().find(|output| tensor_type(output.dtype).is_none()) {
            let (what, dtype) = (format!("output `{}`", output.name), output.dtype.to_string());
            return Err(weir_gpu::Error::UnsupportedDtype { what, dtype }.into());
        }
        let inputs = inputs
            .iter()
            .map(|(name, tensor)| {
                let wants_bool = signature.input(name).is_some_and(|input| input.dtype == Dtype::Bool);
                match tensor.to_tensor(wants_bool) {
                    Ok(tensor) => Ok((name.clone(), tensor)),
                    Err(error) => {
                        Err(Error::new(ErrorCode::InvalidArgument, format!("input `{name}`: {error}")))
                    }
                }
            })
            .collect::<Result<_, _>>()?;
        let own = self.inference_timeout.and_then(|most| Instant::now().checked_add(most));
        let own = own.filter(|own| deadline.is_none_or(|call| *own < call));
        let tab = bill.map(|bill| bill.tab(device, model)).unwrap_or_default();
        let job = Job {
            class: self.class,
            deadline: own.or(deadline),
            queue_timeout: self.queue_timeout,
            alone: self.alone,
            tab,
        };
        let asked = Instant::now();
        let inferred = meter.unmetered(self.service.infer(lease, inputs, job)).await;
        if let Some(bill) = bill {
            match &inferred {
                Ok(inference) => bill.inferred(device, model, inference, asked.elapsed()),
                Err(error) => bill.failed(device, model, asked.elapsed(), error),
            }
        }
        let inference =
            inferred.map_err(|error| Error { limit: limit(&error, own.is_some()), ..error.into() })?;
        self.telemetry.inference(device, &inference.cost);
        Ok(inference.outputs)
    }
}

/// A graph that has been opened, by what it is called.
struct Opened {
    lease: Lease,
    /// The model's name; empty for a guest's own bytes.
    model: Arc<str>,
    device: Arc<str>,
}

/// A graph that a guest holds.
pub struct Graph(Arc<Opened>);

/// An execution context that a guest holds: the graph again, for a graph keeps no state between runs.
pub struct Session(Arc<Opened>);

/// A tensor that a guest holds, as it was given; it is checked when it is used, because its constructor cannot fail.
pub struct GuestTensor {
    shape: Vec<u32>,
    ty: TensorType,
    data: Bytes,
    _held: Held,
}

/// A `wasi:nn` error.
#[derive(Debug)]
pub struct Error {
    code: ErrorCode,
    text: String,
    /// The limit that it tells of.
    limit: Option<Limit>,
}

impl Error {
    /// The text may have a guest's own words in it, which may be long.
    fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if let Some((end, _)) = text.char_indices().nth(MAX_ERROR_CHARS) {
            // A copy, for a text that is only cut keeps all of its memory.
            text = text.get(..end).unwrap_or_default().to_owned();
        }
        Self { code, text, limit: None }
    }
}

/// One more than the longest name of a model, so that a longer one is none.
const LONGEST_NAME: usize = 64;

/// More text than this helps nobody.
const MAX_ERROR_CHARS: usize = 1000;

impl From<weir_gpu::Error> for Error {
    fn from(error: weir_gpu::Error) -> Self {
        use weir_gpu::Error as Gpu;
        let code = match &error {
            Gpu::InvalidTensor(_) | Gpu::InvalidInput { .. } | Gpu::InvalidInputs(_) => {
                ErrorCode::InvalidArgument
            }
            Gpu::InvalidModel(_) | Gpu::UnsupportedFormat(_) | Gpu::Unbounded { .. } | Gpu::Died(_) => {
                ErrorCode::InvalidEncoding
            }
            Gpu::ModelMemory { .. } | Gpu::OperatorCost { .. } => ErrorCode::TooLarge,
            Gpu::UnsupportedDtype { .. } | Gpu::NoGpu | Gpu::NotOnGpu(_) => ErrorCode::UnsupportedOperation,
            // A full queue or device too: of the codes there are, it is the one that says to try again later.
            Gpu::QueueFull { .. }
            | Gpu::TenantQueueFull { .. }
            | Gpu::QueueTimeout { .. }
            | Gpu::DeadlineTooSoon { .. }
            | Gpu::DeadlineExceeded(_)
            | Gpu::DeviceMemory { .. }
            | Gpu::TenantMemory { .. }
            | Gpu::Cancelled => ErrorCode::Timeout,
            Gpu::Engine(_) | Gpu::EnginePanic(_) | Gpu::DeviceFailed { .. } => ErrorCode::RuntimeError,
        };
        Self { limit: limit(&error, false), ..Self::new(code, error.to_string()) }
    }
}

fn dtype(ty: TensorType) -> Dtype {
    match ty {
        TensorType::Fp16 => Dtype::F16,
        TensorType::Fp32 => Dtype::F32,
        TensorType::Fp64 => Dtype::F64,
        TensorType::Bf16 => Dtype::Bf16,
        TensorType::U8 => Dtype::U8,
        TensorType::I32 => Dtype::I32,
        TensorType::I64 => Dtype::I64,
    }
}

fn tensor_type(dtype: Dtype) -> Option<TensorType> {
    match dtype {
        Dtype::F16 => Some(TensorType::Fp16),
        Dtype::F32 => Some(TensorType::Fp32),
        Dtype::F64 => Some(TensorType::Fp64),
        Dtype::Bf16 => Some(TensorType::Bf16),
        Dtype::U8 | Dtype::Bool => Some(TensorType::U8),
        Dtype::I32 => Some(TensorType::I32),
        Dtype::I64 => Some(TensorType::I64),
        Dtype::U16 | Dtype::U32 | Dtype::U64 | Dtype::I8 | Dtype::I16 => None,
    }
}

/// A guest's tensor of any type, shape and bytes.
#[cfg(fuzzing)]
pub fn fuzz_tensor(ty: u8, shape: &[u32], data: &[u8], as_bool: bool) -> Result<Tensor, weir_gpu::Error> {
    use TensorType::*;
    let ty = [Fp16, Fp32, Fp64, Bf16, U8, I32, I64].into_iter().cycle().nth(ty.into()).unwrap_or(U8);
    convert(shape, ty, &Bytes::copy_from_slice(data), as_bool)
}

fn convert(shape: &[u32], ty: TensorType, data: &Bytes, as_bool: bool) -> Result<Tensor, weir_gpu::Error> {
    let dtype = if as_bool && ty == TensorType::U8 { Dtype::Bool } else { dtype(ty) };
    let shape = shape.iter().map(|axis| usize::try_from(*axis).unwrap_or(usize::MAX)).collect();
    Tensor::new(dtype, shape, data.clone())
}

impl GuestTensor {
    fn to_tensor(&self, as_bool: bool) -> Result<Tensor, weir_gpu::Error> {
        convert(&self.shape, self.ty, &self.data, as_bool)
    }

    /// What a run gave, as a guest may hold it.
    fn from_tensor(tensor: &Tensor, view: &View<'_>) -> Result<Self, Error> {
        let cannot = || Error::new(ErrorCode::RuntimeError, "the output cannot be shown to guests");
        let ty = tensor_type(tensor.dtype()).ok_or_else(cannot)?;
        let shape = tensor.shape().iter().map(|axis| u32::try_from(*axis)).collect::<Result<Vec<_>, _>>();
        let shape = shape.map_err(|_| cannot())?;
        let held = view.account.hold(bytes(&shape, tensor.data().len())).map_err(|exceeded| Error {
            limit: Some(exceeded.limit),
            ..Error::new(ErrorCode::TooLarge, exceeded.detail)
        })?;
        Ok(Self { shape, ty, data: tensor.data().clone(), _held: held })
    }
}

/// What a tensor costs the host.
fn bytes(shape: &[u32], data: usize) -> usize {
    data.saturating_add(size_of_val(shape)).saturating_add(size_of::<GuestTensor>())
}

/// What the host functions below work on: the sandbox's table, and what its function may use.
pub struct View<'a> {
    pub table: &'a mut ResourceTable,
    pub access: &'a ModelAccess,
    /// When the call ends, whatever it is doing.
    pub deadline: Option<Instant>,
    /// What the host holds for the sandbox.
    pub account: &'a Arc<Account>,
    /// What the guest computes itself; a device's work is not.
    pub meter: &'a Meter,
    pub met: &'a Met,
    /// Where what the call uses is written.
    pub bill: Option<&'a Arc<Bill>>,
}

struct HasView;

impl HasData for HasView {
    type Data<'a> = View<'a>;
}

/// Offers `wasi:nn` to guests.
pub fn add_to_linker(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    graph::add_to_linker::<_, HasView>(linker, Host::nn)?;
    tensor::add_to_linker::<_, HasView>(linker, Host::nn)?;
    inference::add_to_linker::<_, HasView>(linker, Host::nn)?;
    errors::add_to_linker::<_, HasView>(linker, Host::nn)
}

type Fallible<T> = wasmtime::Result<Result<T, Resource<Error>>>;

/// The limit that an error of the door tells of. A deadline is the function's own for one inference, or the call's.
fn limit(error: &weir_gpu::Error, own_deadline: bool) -> Option<Limit> {
    use weir_gpu::Error as Gpu;
    match error {
        Gpu::ModelMemory { .. } => Some(Limit::ModelMemory),
        Gpu::OperatorCost { .. } => Some(Limit::OperatorCost),
        Gpu::DeviceMemory { .. } => Some(Limit::DeviceMemory),
        Gpu::TenantMemory { .. } => Some(Limit::TenantMemory),
        Gpu::QueueFull { .. } => Some(Limit::DeviceQueue),
        Gpu::TenantQueueFull { .. } => Some(Limit::TenantQueue),
        Gpu::QueueTimeout { .. } => Some(Limit::QueueTime),
        Gpu::DeadlineTooSoon { .. } | Gpu::DeadlineExceeded(_) if own_deadline => Some(Limit::InferenceTime),
        // One that has passed ends the call too, which is told then.
        Gpu::DeadlineTooSoon { .. } => Some(Limit::RequestTime),
        _ => None,
    }
}

impl View<'_> {
    /// Hands a result to the guest: a value or an error becomes a resource. Only a full table traps.
    fn give<T: Send + 'static>(&mut self, result: Result<T, Error>) -> Fallible<Resource<T>> {
        Ok(match result {
            Ok(value) => Ok(self.table.push(value)?),
            Err(error) => Err(self.fail(error)?),
        })
    }

    fn fail(&mut self, error: Error) -> wasmtime::Result<Resource<Error>> {
        if let Some(limit) = error.limit {
            self.met.note(Exceeded::new(limit, error.text.clone()));
        }
        Ok(self.table.push(error)?)
    }
}

impl graph::Host for View<'_> {
    async fn load(
        &mut self,
        builders: Vec<Vec<u8>>,
        encoding: GraphEncoding,
        target: ExecutionTarget,
    ) -> Fallible<Resource<Graph>> {
        let held = self.account.hold(builders.iter().map(Vec::len).fold(0, usize::saturating_add))?;
        let loaded = self.access.load_bytes(builders, encoding, target, self.meter, self.bill).await;
        drop(held);
        self.give(loaded)
    }

    async fn load_by_name(&mut self, name: String) -> Fallible<Resource<Graph>> {
        let opened =
            self.access.open(&name, self.meter, self.bill).await.map(|opened| Graph(Arc::new(opened)));
        self.give(opened)
    }
}

impl graph::HostGraph for View<'_> {
    fn init_execution_context(&mut self, graph: Resource<Graph>) -> Fallible<Resource<Session>> {
        let opened = Arc::clone(&self.table.get(&graph)?.0);
        self.give(Ok(Session(opened)))
    }

    fn drop(&mut self, graph: Resource<Graph>) -> wasmtime::Result<()> {
        self.table.delete(graph)?;
        Ok(())
    }
}

impl inference::Host for View<'_> {}

impl inference::HostGraphExecutionContext for View<'_> {
    async fn compute(
        &mut self,
        context: Resource<Session>,
        inputs: Vec<(String, Resource<GuestTensor>)>,
    ) -> Fallible<Vec<(String, Resource<GuestTensor>)>> {
        let opened = Arc::clone(&self.table.get(&context)?.0);
        // They are held until the job is done with them.
        let inputs = inputs
            .into_iter()
            .map(|(name, tensor)| Ok((name, self.table.delete(tensor)?)))
            .collect::<wasmtime::Result<Vec<_>>>()?;
        let computed = self.access.compute(&opened, &inputs, self.deadline, self.meter, self.bill).await;
        let outputs = computed.and_then(|outputs| {
            let shown =
                |(name, tensor): (String, Tensor)| Ok((name, GuestTensor::from_tensor(&tensor, self)?));
            outputs.into_iter().map(shown).collect::<Result<Vec<_>, _>>()
        });
        match outputs {
            Ok(outputs) => {
                let push = |(name, tensor)| Ok((name, self.table.push(tensor)?));
                Ok(Ok(outputs.into_iter().map(push).collect::<wasmtime::Result<_>>()?))
            }
            Err(error) => Ok(Err(self.fail(error)?)),
        }
    }

    fn drop(&mut self, context: Resource<Session>) -> wasmtime::Result<()> {
        self.table.delete(context)?;
        Ok(())
    }
}

impl tensor::Host for View<'_> {}

impl tensor::HostTensor for View<'_> {
    fn new(
        &mut self,
        shape: Vec<u32>,
        ty: TensorType,
        data: Vec<u8>,
    ) -> wasmtime::Result<Resource<GuestTensor>> {
        let held = self.account.hold(bytes(&shape, data.len()))?;
        Ok(self.table.push(GuestTensor { shape, ty, data: Bytes::from(data), _held: held })?)
    }

    fn dimensions(&mut self, tensor: Resource<GuestTensor>) -> wasmtime::Result<Vec<u32>> {
        Ok(self.table.get(&tensor)?.shape.clone())
    }

    fn ty(&mut self, tensor: Resource<GuestTensor>) -> wasmtime::Result<TensorType> {
        Ok(self.table.get(&tensor)?.ty)
    }

    fn data(&mut self, tensor: Resource<GuestTensor>) -> wasmtime::Result<Vec<u8>> {
        Ok(self.table.get(&tensor)?.data.to_vec())
    }

    fn drop(&mut self, tensor: Resource<GuestTensor>) -> wasmtime::Result<()> {
        self.table.delete(tensor)?;
        Ok(())
    }
}

impl errors::Host for View<'_> {}

impl errors::HostError for View<'_> {
    fn code(&mut self, error: Resource<Error>) -> wasmtime::Result<ErrorCode> {
        Ok(self.table.get(&error)?.code)
    }

    fn data(&mut self, error: Resource<Error>) -> wasmtime::Result<String> {
        Ok(self.table.get(&error)?.text.clone())
    }

    fn drop(&mut self, error: Resource<Error>) -> wasmtime::Result<()> {
        self.table.delete(error)?;
        Ok(())
    }
}
