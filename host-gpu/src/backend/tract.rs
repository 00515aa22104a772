//! The default engine: tract, which is Rust throughout, so that malformed models cannot corrupt the host.
//!
//! tract prepares a model for axes of unknown extent where it can reason about them. Where it cannot (shapes computed
//! in ways that it does not follow, which most real models do), the model is prepared once for each shape of its
//! inputs that comes up, and the last few of these plans are kept. A plan holds packed weights of its own.

use std::collections::HashSet;
use std::io::Cursor;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::dimension;
use tract_onnx::pb::type_proto::Value;
use tract_onnx::pb::{ModelProto, ValueInfoProto};
use tract_onnx::prelude::{
    Framework, InferenceModel, InferenceModelExt, IntoArcTensor, IntoRunnable, SymbolScope, TDim, TValue,
    TVec, TypedModel, TypedRunnableModel,
};
use tract_onnx::tract_core;
use tract_onnx::tract_core::ops::logic::IfThenElse;
use tract_onnx::tract_core::ops::scan::{OptScan, Scan};
use tract_onnx::tract_hir::infer::{Factoid, InferenceFact, ShapeFactoid};
use tract_onnx::tract_hir::ops::unimpl::UnimplementedOp;

use super::{Backend, Graph, Plan};
use crate::Error;
use crate::model::{Dim, Format, Signature, TensorSpec};
use crate::tensor::{Dtype, Tensor};

type EngineTensor = tract_onnx::prelude::Tensor;
type EngineDtype = tract_onnx::prelude::DatumType;
type EngineError = tract_onnx::prelude::TractError;

/// Engine errors can carry whole nodes of the model; more than this much text helps nobody.
const MAX_ERROR_CHARS: usize = 400;

pub(crate) struct Tract;

struct TractGraph {
    form: Form,
    signature: Signature,
}

/// A model prepared for certain shapes, or for all.
struct TractPlan {
    runnable: Arc<TypedRunnableModel>,
    /// Whether all runs do the same work, whatever the data: there is no shape in it that is not known, and no loop or
    /// branch.
    steady: bool,
    /// Nanoseconds that the last run took.
    last_run: AtomicU64,
    outputs: Outputs,
}

/// What the signature says of the outputs.
type Outputs = Arc<[TensorSpec]>;

type Shapes = Vec<Vec<usize>>;

/// How a model is prepared.
enum Form {
    /// Once, for all shapes.
    Symbolic(Arc<TractPlan>),
    /// For each shape of the inputs.
    PerShape(Box<PerShape>),
}

/// A model that is prepared again for each shape of its inputs.
struct PerShape {
    model: InferenceModel,
    /// The newest last.
    plans: Mutex<Vec<(Shapes, Arc<TractPlan>)>>,
    outputs: Outputs,
    preparing: Mutex<()>,
}

/// Plans that a model prepared per shape keeps.
const MAX_PLANS: usize = 8;

impl Backend for Tract {
    fn load(&self, format: Format, bytes: &[u8]) -> Result<Arc<dyn Graph>, Error> {
        match format {
            Format::Onnx => load_onnx(bytes),
        }
    }
}

fn load_onnx(bytes: &[u8]) -> Result<Arc<dyn Graph>, Error> {
    let onnx = tract_onnx::onnx();
    let proto = onnx
        .proto_model_for_read(&mut Cursor::new(bytes))
        .map_err(|error| Error::InvalidModel(format!("the bytes are not ONNX ({})", text(&error))))?;
    let (input_names, declared) = names(&proto)?;
    let mut model = onnx.model_for_proto_model(&proto).map_err(invalid)?;
    drop(proto);
    refuse_unknown_operators(&model)?;
    name_unknown_dims(&mut model)?;
    let facts = model.inputs.iter().map(|outlet| model.outlet_fact(*outlet).cloned());
    let inputs = specs("input", input_names, facts.collect::<Result<_, _>>().map_err(invalid)?)?;

    let (form, outputs) = match model.clone().into_optimized() {
        Ok(prepared) => {
            let facts =
                prepared.outputs.iter().map(|outlet| prepared.outlet_fact(*outlet).map(InferenceFact::from));
            let facts = facts.collect::<Result<_, _>>().map_err(invalid)?;
            let names = declared.into_iter().map(|output| output.name).collect();
            let outputs: Outputs = specs("output", names, facts)?.into();
            (Form::Symbolic(TractPlan::new(prepared, Arc::clone(&outputs)).map_err(invalid)?), outputs)
        }
        Err(error) => {
            let varies = |axes: &[Dim]| axes.iter().any(|dim| !matches!(dim, Dim::Fixed(_)));
            if !inputs.iter().any(|input| varies(&input.shape)) {
                return Err(invalid(error));
            }
            let outputs: Outputs = declared.iter().map(declared_spec).collect::<Result<_, _>>()?;
            let per_shape = PerShape {
                model,
                plans: Mutex::default(),
                outputs: Arc::clone(&outputs),
                preparing: Mutex::default(),
            };
            // Where only batches vary, single requests are by far the likeliest shape: it is ready before it is asked.
            if !inputs.iter().any(|input| varies(input.shape.get(1..).unwrap_or_default())) {
                let single = |dim: &Dim| if let Dim::Fixed(size) = dim { *size } else { 1 };
                let shapes = inputs.iter().map(|input| input.shape.iter().map(single).collect()).collect();
                per_shape.plan(shapes).map_err(invalid)?;
            }
            (Form::PerShape(Box::new(per_shape)), outputs)
        }
    };
    Ok(Arc::new(TractGraph { form, signature: Signature { inputs, outputs: outputs.to_vec() } }))
}

impl TractPlan {
    fn new(model: TypedModel, outputs: Outputs) -> Result<Arc<Self>, EngineError> {
        let steady = model.nodes().iter().all(|node| {
            let known = node.outputs.iter().all(|output| output.fact.shape.as_concrete().is_some());
            known && !node.op_is::<Scan>() && !node.op_is::<OptScan>() && !node.op_is::<IfThenElse>()
        });
        let runnable = model.into_runnable()?;
        Ok(Arc::new(Self { runnable, steady, last_run: AtomicU64::new(u64::MAX), outputs }))
    }
}

impl PerShape {
    /// The plan for inputs of these shapes: one that is kept, or a new one.
    fn plan(&self, shapes: Shapes) -> Result<Arc<TractPlan>, EngineError> {
        if let Some(plan) = self.kept(&shapes) {
            return Ok(plan);
        }
        // One at a time: whoever waits here for the same shape finds it done.
        let _turn = lock(&self.preparing);
        if let Some(plan) = self.kept(&shapes) {
            return Ok(plan);
        }
        let mut model = self.model.clone();
        for (index, shape) in shapes.iter().enumerate() {
            let dims: TVec<TDim> = shape.iter().map(|size| TDim::from(*size)).collect();
            let fact = model.input_fact(index)?.clone().with_shape(ShapeFactoid::from(dims));
            model.set_input_fact(index, fact)?;
        }
        let plan = TractPlan::new(model.into_optimized()?, Arc::clone(&self.outputs))?;
        let mut plans = lock(&self.plans);
        if plans.len() >= MAX_PLANS {
            plans.remove(0);
        }
        plans.push((shapes, Arc::clone(&plan)));
        Ok(plan)
    }

    fn kept(&self, shapes: &Shapes) -> Option<Arc<TractPlan>> {
        let mut plans = lock(&self.plans);
        let position = plans.iter().position(|(kept, _)| kept == shapes)?;
        let found = plans.remove(position);
        let plan = Arc::clone(&found.1);
        plans.push(found);
        Some(plan)
    }
}

/// The plans are whole between any two statements, whatever panics while a lock is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The engine keeps operators that it does not know as placeholders that fail when they are run.
fn refuse_unknown_operators(model: &InferenceModel) -> Result<(), Error> {
    let unknown = model.nodes().iter().find(|node| node.op_is::<UnimplementedOp>());
    match unknown {
        Some(node) => {
            let shown = node.op.name();
            let name = shown
                .strip_prefix("Unimplemented(")
                .and_then(|name| name.strip_suffix(')'))
                .unwrap_or(&shown);
            Err(Error::InvalidModel(format!("operator `{name}` is not known to the engine")))
        }
        None => Ok(()),
    }
}

/// The names of the inputs that callers must give, and what is said of the outputs, in the order that the engine keeps.
fn names(proto: &ModelProto) -> Result<(Vec<String>, Vec<ValueInfoProto>), Error> {
    let graph = proto.graph.as_ref().ok_or_else(|| {
        Error::InvalidModel("the bytes are not ONNX (there is no graph in them)".to_owned())
    })?;
    let given: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let inputs = graph.input.iter().map(|input| &input.name).filter(|name| !given.contains(name.as_str()));
    Ok((inputs.cloned().collect(), graph.output.clone()))
}

/// An output as the model declares it, where the engine cannot tell before it knows the inputs' shapes.
fn declared_spec(output: &ValueInfoProto) -> Result<TensorSpec, Error> {
    let what = format!("output `{}`", output.name);
    let Some(Value::TensorType(tensor)) = output.r#type.as_ref().and_then(|ty| ty.value.as_ref()) else {
        return Err(Error::InvalidModel(format!("{what} has no element type")));
    };
    let known = DataType::try_from(tensor.elem_type).ok();
    let dtype = known.and_then(|dtype| EngineDtype::try_from(dtype).ok()).and_then(our_dtype);
    let dtype = dtype.ok_or_else(|| {
        let dtype =
            known.map_or_else(|| tensor.elem_type.to_string(), |dtype| format!("{dtype:?}").to_lowercase());
        Error::UnsupportedDtype { what, dtype }
    })?;
    let dims = tensor.shape.iter().flat_map(|shape| &shape.dim);
    let shape = dims.map(|dim| match &dim.value {
        Some(dimension::Value::DimValue(size)) if *size >= 0 => {
            usize::try_from(*size).map_or(unknown(), Dim::Fixed)
        }
        Some(dimension::Value::DimParam(name)) if !name.is_empty() => Dim::Computed(name.clone()),
        _ => unknown(),
    });
    Ok(TensorSpec { name: output.name.clone(), dtype, shape: shape.collect() })
}

fn unknown() -> Dim {
    Dim::Computed("?".to_owned())
}

/// Gives each input axis of unknown extent a symbol of its own, so that the engine can reason about it.
fn name_unknown_dims(model: &mut InferenceModel) -> Result<(), Error> {
    let symbols: SymbolScope = model.symbols.clone();
    for index in 0..model.inputs.len() {
        let fact = model.input_fact(index).map_err(invalid)?.clone();
        let rank = fact.shape.rank().concretize().ok_or_else(|| {
            Error::InvalidModel(format!("input {index} has no shape: give it at least its number of axes"))
        })?;
        let dims = fact.shape.dims().take(usize::try_from(rank).unwrap_or(0));
        let named: TVec<TDim> = dims
            .map(|dim| dim.concretize().unwrap_or_else(|| symbols.new_with_prefix("dim").into()))
            .collect();
        let fact: InferenceFact = fact.with_shape(ShapeFactoid::from(named));
        model.set_input_fact(index, fact).map_err(invalid)?;
    }
    Ok(())
}

fn specs(what: &str, names: Vec<String>, facts: Vec<InferenceFact>) -> Result<Vec<TensorSpec>, Error> {
    if names.len() != facts.len() {
        return Err(Error::InvalidModel(format!(
            "it declares {} {what}s and has {}",
            names.len(),
            facts.len()
        )));
    }
    names
        .into_iter()
        .zip(facts)
        .map(|(name, fact)| {
            let what = format!("{what} `{name}`");
            let declared = fact
                .datum_type
                .concretize()
                .ok_or_else(|| Error::InvalidModel(format!("{what} has no element type")))?;
            let dtype = our_dtype(declared).ok_or_else(|| Error::UnsupportedDtype {
                what,
                dtype: format!("{declared:?}").to_lowercase(),
            })?;
            let shape = fact.shape.dims().map(|dim| match dim.concretize() {
                Some(dim) => our_dim(&dim),
                None => unknown(),
            });
            let rank =
                fact.shape.rank().concretize().and_then(|rank| usize::try_from(rank).ok()).unwrap_or(0);
            Ok(TensorSpec { name, dtype, shape: shape.take(rank).collect() })
        })
        .collect()
}

fn our_dim(dim: &TDim) -> Dim {
    match dim {
        TDim::Sym(symbol) => Dim::Symbol(symbol.to_string()),
        dim => match dim.to_i64().ok().and_then(|size| usize::try_from(size).ok()) {
            Some(size) => Dim::Fixed(size),
            None => Dim::Computed(dim.to_string()),
        },
    }
}

fn our_dtype(dtype: EngineDtype) -> Option<Dtype> {
    Some(match dtype {
        EngineDtype::Bool => Dtype::Bool,
        EngineDtype::U8 => Dtype::U8,
        EngineDtype::U16 => Dtype::U16,
        EngineDtype::U32 => Dtype::U32,
        EngineDtype::U64 => Dtype::U64,
        EngineDtype::I8 => Dtype::I8,
        EngineDtype::I16 => Dtype::I16,
        EngineDtype::I32 => Dtype::I32,
        // The engine's dimension type stands for ONNX's int64 in shape computations.
        EngineDtype::I64 | EngineDtype::TDim => Dtype::I64,
        EngineDtype::F16 => Dtype::F16,
        EngineDtype::F32 => Dtype::F32,
        EngineDtype::F64 => Dtype::F64,
        _ => return None,
    })
}

fn engine_dtype(dtype: Dtype) -> Option<EngineDtype> {
    Some(match dtype {
        Dtype::Bool => EngineDtype::Bool,
        Dtype::U8 => EngineDtype::U8,
        Dtype::U16 => EngineDtype::U16,
        Dtype::U32 => EngineDtype::U32,
        Dtype::U64 => EngineDtype::U64,
        Dtype::I8 => EngineDtype::I8,
        Dtype::I16 => EngineDtype::I16,
        Dtype::I32 => EngineDtype::I32,
        Dtype::I64 => EngineDtype::I64,
        Dtype::F16 => EngineDtype::F16,
        Dtype::F32 => EngineDtype::F32,
        Dtype::F64 => EngineDtype::F64,
        Dtype::Bf16 => return None,
    })
}

fn shapes(inputs: &[Tensor]) -> Shapes {
    inputs.iter().map(|input| input.shape().to_vec()).collect()
}

impl Graph for TractGraph {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn ready(&self, inputs: &[Tensor]) -> Option<Arc<dyn Plan>> {
        match &self.form {
            Form::Symbolic(plan) => Some(Arc::clone(plan) as Arc<dyn Plan>),
            Form::PerShape(plans) => plans.kept(&shapes(inputs)).map(|plan| plan as Arc<dyn Plan>),
        }
    }

    fn prepare(&self, inputs: &[Tensor]) -> Result<Arc<dyn Plan>, Error> {
        match &self.form {
            Form::Symbolic(plan) => Ok(Arc::clone(plan) as Arc<dyn Plan>),
            Form::PerShape(plans) => {
                let shapes = shapes(inputs);
                let plan = plans.plan(shapes.clone()).map_err(|error| {
                    let reason = text(&error);
                    Error::InvalidInputs(format!("the model does not take shapes {shapes:?}: {reason}"))
                })?;
                Ok(plan as Arc<dyn Plan>)
            }
        }
    }
}

impl Plan for TractPlan {
    fn steady(&self) -> Option<Duration> {
        self.steady.then(|| Duration::from_nanos(self.last_run.load(Ordering::Relaxed)))
    }

    fn run(
        &self,
        inputs: Vec<Tensor>,
        checkpoint: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Vec<Tensor>, Error> {
        let inputs = inputs.iter().map(to_engine).collect::<Result<TVec<TValue>, Error>>()?;
        let started = Instant::now();
        let mut state = self.runnable.spawn().map_err(failed)?;
        let outputs = state
            .run_plan_with_eval(inputs, |context, state, node, inputs| -> Result<_, EngineError> {
                checkpoint()?;
                tract_core::plan::eval(context, state, node, inputs)
            })
            .map_err(failed)?;
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_run.store(took, Ordering::Relaxed);
        outputs.into_iter().zip(&*self.outputs).map(|(value, spec)| from_engine(value, spec)).collect()
    }
}

/// Copies a tensor into memory of the engine's own, which it needs aligned. One of the two copies of an input (the
/// other brings it out of the guest).
fn to_engine(tensor: &Tensor) -> Result<TValue, Error> {
    let dtype = engine_dtype(tensor.dtype()).ok_or_else(|| Error::UnsupportedDtype {
        what: "an input".to_owned(),
        dtype: tensor.dtype().to_string(),
    })?;
    // A bool that is neither 0 nor 1 would be undefined behaviour inside the engine.
    if tensor.dtype() == Dtype::Bool && tensor.data().iter().any(|byte| *byte > 1) {
        return Err(Error::InvalidTensor("a bool tensor has bytes other than 0 and 1".to_owned()));
    }
    let mut engine = EngineTensor::zero_dt(dtype, tensor.shape()).map_err(failed)?;
    engine.as_bytes_mut().copy_from_slice(tensor.data());
    Ok(engine.into())
}

/// Shares an output's memory with the engine's tensor; nothing is copied.
fn from_engine(value: TValue, spec: &TensorSpec) -> Result<Tensor, Error> {
    struct Owner(Arc<EngineTensor>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            self.0.as_plain_ram_storage().map(|storage| storage.as_bytes()).unwrap_or_default()
        }
    }
    let mut tensor = value.into_arc_tensor();
    if tensor.datum_type() == EngineDtype::TDim {
        tensor = tensor.cast_to_dt(EngineDtype::I64).map_err(failed)?.into_owned().into_arc_tensor();
    }
    if our_dtype(tensor.datum_type()) != Some(spec.dtype) || tensor.as_plain_ram_storage().is_none() {
        return Err(Error::Engine(format!(
            "output `{}` came out as {:?}, its signature says {}",
            spec.name,
            tensor.datum_type(),
            spec.dtype
        )));
    }
    let shape = tensor.shape().to_vec();
    Tensor::new(spec.dtype, shape, Bytes::from_owner(Owner(tensor)))
}

fn text(error: &EngineError) -> String {
    let text = format!("{error:#}").replace('\n', " ");
    match text.char_indices().nth(MAX_ERROR_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

fn invalid(error: EngineError) -> Error {
    Error::InvalidModel(text(&error))
}

/// An error of a run: a checkpoint's own, or the engine's.
fn failed(error: EngineError) -> Error {
    match error.downcast_ref::<Error>() {
        Some(ours) => ours.clone(),
        None => Error::Engine(text(&error)),
    }
}
