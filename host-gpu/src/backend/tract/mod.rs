//! The default engine: tract, which is Rust throughout, so that malformed models cannot corrupt the host.
//!
//! tract prepares a model for axes of unknown extent where it can reason about them. Where it cannot (shapes computed
//! in ways that it does not follow, which most real models do), the model is prepared once for each shape of its
//! inputs that comes up, and the last few of these plans are kept. A plan holds packed weights of its own.
//!
//! Models are hostile. In the order in which they are looked at: `proto.rs` before the engine sees anything,
//! `demand.rs` before anything runs, `watch.rs` before each operator where sizes depend on data.

mod away;
mod convert;
mod demand;
mod extent;
mod operator;
mod per_shape;
mod plan;
mod proto;
mod signature;
mod watch;

use std::any::Any;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tract_onnx::prelude::{Framework, InferenceModel, InferenceModelExt, TValue, TypedModel};
use tract_onnx::tract_core::internal::{Symbol, TDim};
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_hir::infer::InferenceFact;

use self::per_shape::PerShape;
use self::plan::TractPlan;
use super::{Backend, Book, Graph, Nobody, Parsed, Plan, Shapes};
use crate::Error;
use crate::examine::{ModelLimits, Report};
use crate::model::{Dim, Format, Signature, TensorSpec};
use crate::tensor::Tensor;

type EngineTensor = tract_onnx::prelude::Tensor;
type EngineDtype = tract_onnx::prelude::DatumType;
type EngineError = tract_onnx::prelude::TractError;

/// The engine and its version, as the workspace pins it: another version may fold, order and lower differently.
pub(crate) const ENGINE: &str = "tract 0.23.9";

/// Engine errors can carry whole nodes of the model; more than this much text helps nobody.
const MAX_ERROR_CHARS: usize = 400;

/// A device other than the cores of the host. What is asked of it is asked on threads of its own, each of which has its
/// own queue of operators there.
pub(crate) trait Accelerator: Send + Sync {
    /// The model with operators of the device, as far as there are any, its constants in the device's memory.
    fn translate(&self, model: TypedModel) -> Result<TypedModel, Error>;

    /// Operators of a translated model that run on the CPU, with their names.
    fn host_operators(&self, model: &TypedModel) -> Vec<String>;

    /// Whether a translated operator may be given these inputs, now that they are there.
    ///
    /// # Errors
    /// [`Error::Engine`] if not; the run ends.
    fn check(&self, model: &TypedModel, node: &demand::Node, inputs: &[TValue]) -> Result<(), Error>;

    /// What a thread does before it lets go of a translated model, wherever that is.
    fn enter(&self);

    /// The most operators that a run may have begun and not ended.
    fn outstanding(&self) -> usize;

    /// Waits until all that this thread has begun there has ended.
    fn synchronize(&self) -> Result<(), Error>;

    /// A tensor that has nothing in the device's memory any more.
    fn bring_back(&self, value: TValue) -> Result<TValue, EngineError>;

    /// What an operator's failure means, if this device knows it by its text: an allocation that failed, by an operator that
    /// was to have `bytes` in all.
    fn of_failure(&self, text: &str, bytes: u64) -> Option<Error>;
}

/// The engine for one device: for the cores of the host where there is no accelerator.
#[derive(Clone, Default)]
pub(crate) struct Tract {
    pub limits: ModelLimits,
    pub accelerator: Option<Arc<dyn Accelerator>>,
}

struct TractGraph {
    form: Form,
    signature: Signature,
}

/// What the signature says of the outputs.
type Outputs = Arc<[TensorSpec]>;

/// How a model is prepared.
enum Form {
    /// Once, for all shapes.
    Symbolic(Arc<TractPlan>),
    /// For each shape of the inputs.
    PerShape(Box<PerShape>),
}

/// A model that has been read.
struct ParsedOnnx {
    engine: Tract,
    inputs: Vec<TensorSpec>,
    outputs: Outputs,
    form: ParsedForm,
}

enum ParsedForm {
    /// All that does not depend on the device is done; on the CPU, what does as well.
    Symbolic(TypedModel),
    PerShape(InferenceModel),
}

impl Backend for Tract {
    fn parse(&self, format: Format, bytes: &[u8]) -> Result<Box<dyn Parsed>, Error> {
        match format {
            Format::Onnx => Ok(Box::new(self.parse_onnx(bytes)?)),
        }
    }

    fn examine(&self, format: Format, bytes: &[u8], shapes: Option<&[Vec<usize>]>) -> Result<Report, Error> {
        match format {
            Format::Onnx => self.parse_onnx(bytes)?.graph()?.examine(shapes, &self.limits),
        }
    }
}

impl Tract {
    fn parse_onnx(&self, bytes: &[u8]) -> Result<ParsedOnnx, Error> {
        let onnx = tract_onnx::onnx();
        let proto = onnx
            .proto_model_for_read(&mut Cursor::new(bytes))
            .map_err(|error| Error::InvalidModel(format!("the bytes are not ONNX ({})", text(&error))))?;
        let (input_names, declared) = signature::names(&proto)?;
        proto::check(&proto, &onnx.op_register, &self.limits)?;
        let mut model = onnx.model_for_proto_model(&proto).map_err(invalid)?;
        drop(proto);
        signature::name_unknown_dims(&mut model)?;
        let facts = model.inputs.iter().map(|outlet| model.outlet_fact(*outlet).cloned());
        let facts = facts.collect::<Result<_, _>>().map_err(invalid)?;
        let inputs = signature::specs("input", input_names, facts)?;

        let (form, outputs) = match self.simplified(model.clone()) {
            Ok(simplified) => {
                let by_shape = self.accelerator.is_some() && inputs.iter().any(|input| varies(&input.shape));
                let facts = simplified.outputs.iter();
                let facts = facts.map(|outlet| simplified.outlet_fact(*outlet).map(InferenceFact::from));
                let facts = facts.collect::<Result<_, _>>().map_err(invalid)?;
                let names = declared.into_iter().map(|output| output.name).collect();
                let outputs = signature::specs("output", names, facts)?.into();
                // An accelerator's operators are only looked at for sizes that are known.
                let form =
                    if by_shape { ParsedForm::PerShape(model) } else { ParsedForm::Symbolic(simplified) };
                (form, outputs)
            }
            Err(error) => {
                if !inputs.iter().any(|input| varies(&input.shape)) {
                    return Err(invalid(error));
                }
                let outputs = declared.iter().map(signature::declared_spec).collect::<Result<_, _>>()?;
                (ParsedForm::PerShape(model), outputs)
            }
        };
        Ok(ParsedOnnx { engine: self.clone(), inputs, outputs, form })
    }

    /// A model with all done that can be done before it goes to its device.
    fn simplified(&self, model: InferenceModel) -> Result<TypedModel, EngineError> {
        let mut model = model.into_typed()?.into_decluttered()?;
        if self.accelerator.is_none() {
            model.optimize()?;
        }
        Ok(model)
    }

    /// A simplified model for its device.
    fn translated(&self, model: TypedModel) -> Result<TypedModel, Error> {
        match &self.accelerator {
            None => Ok(model),
            Some(accelerator) => accelerator.translate(model),
        }
    }
}

impl ParsedOnnx {
    fn graph(&self) -> Result<TractGraph, Error> {
        let (inputs, outputs) = (&self.inputs, &self.outputs);
        let form = match &self.form {
            ParsedForm::Symbolic(model) => {
                let model = self.engine.translated(model.clone())?;
                Form::Symbolic(TractPlan::new(model, Arc::clone(outputs), self.engine.clone())?)
            }
            ParsedForm::PerShape(model) => {
                let per_shape = PerShape::new(model.clone(), Arc::clone(outputs), self.engine.clone());
                // Where only batches vary, single requests are by far the likeliest shape: it is ready before it is asked.
                if !inputs.iter().any(|input| varies(input.shape.get(1..).unwrap_or_default())) {
                    // Its bytes are booked with the graph's.
                    per_shape.plan(single(inputs), &mut unbooked).map_err(per_shape::Failure::of_load)?;
                }
                Form::PerShape(Box::new(per_shape))
            }
        };
        let signature = Signature { inputs: inputs.clone(), outputs: outputs.to_vec() };
        Ok(TractGraph { form, signature })
    }
}

impl Parsed for ParsedOnnx {
    fn bytes(&self) -> u64 {
        match &self.form {
            ParsedForm::Symbolic(model) => demand::constants(model),
            ParsedForm::PerShape(model) => {
                let constants = model.nodes().iter().filter_map(|node| node.op_as::<Const>());
                let bytes = |constant: &Const| {
                    extent::wide(constant.val().len())
                        .saturating_mul(extent::wide(constant.val().datum_type().size_of()))
                };
                constants.map(bytes).fold(0, u64::saturating_add)
            }
        }
    }

    fn prepare(&self) -> Result<Box<dyn Graph>, Error> {
        Ok(Box::new(self.graph()?))
    }
}

/// Where nobody keeps books, or has done so already.
fn unbooked(_: u64) -> Result<Box<dyn Any + Send + Sync>, Error> {
    Ok(Box::new(()))
}

fn varies(axes: &[Dim]) -> bool {
    axes.iter().any(|dim| !matches!(dim, Dim::Fixed(_)))
}

/// The inputs' shapes with one element along each axis that varies.
fn single(inputs: &[TensorSpec]) -> Shapes {
    let size = |dim: &Dim| if let Dim::Fixed(size) = dim { *size } else { 1 };
    inputs.iter().map(|input| input.shape.iter().map(size).collect()).collect()
}

impl TractGraph {
    /// Looks at one set of shapes, those that callers will bring or else made-up ones, and runs the graph once on
    /// zeros. What the engine has against made-up shapes or data is not held against the model.
    fn examine(&self, given: Option<&[Vec<usize>]>, limits: &ModelLimits) -> Result<Report, Error> {
        let made_up = given.is_none();
        let shapes = given.map_or_else(|| single(&self.signature.inputs), <[_]>::to_vec);
        let report = |demand: demand::Demand| Report {
            signature: self.signature.clone(),
            memory: demand.memory,
            operator_cost: demand.operator_cost,
        };
        let zeros = self.zeros(&shapes, limits)?;
        let prepared = catch_unwind(AssertUnwindSafe(|| self.plan(shapes.clone(), &mut unbooked)))
            .unwrap_or_else(|panic| Err(Error::from_panic(&*panic)));
        let plan = match prepared {
            Ok(plan) => plan,
            Err(error) if made_up && !error.is_limit() => return Ok(report(demand::Demand::default())),
            Err(error) => return Err(error),
        };
        let planned = plan.demand(&shapes)?;
        let run = || plan.execute(zeros, &mut Nobody);
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok((_, seen))) => Ok(report(planned.max(seen))),
            Ok(Err(error)) if error.is_limit() => Err(error),
            Ok(Err(_)) | Err(_) => Ok(report(planned)),
        }
    }

    fn zeros(&self, shapes: &[Vec<usize>], limits: &ModelLimits) -> Result<Vec<Tensor>, Error> {
        let inputs = &self.signature.inputs;
        if shapes.len() != inputs.len() {
            let (expected, given) = (inputs.len(), shapes.len());
            return Err(Error::InvalidInputs(format!("the model has {expected} inputs, given {given}")));
        }
        let named = inputs.iter().zip(shapes).map(|(spec, shape)| {
            let dims: extent::Dims = shape.iter().map(|size| extent::wide(*size)).collect();
            let needed = extent::bytes(&dims, spec.dtype.size());
            demand::check_memory(limits, needed)?;
            let size = usize::try_from(needed).unwrap_or(usize::MAX);
            let zeros = Tensor::new(spec.dtype, shape.clone(), Bytes::from(vec![0; size]))?;
            Ok((spec.name.clone(), zeros))
        });
        self.signature.order_inputs(named.collect::<Result<_, Error>>()?)
    }

    fn plan(&self, shapes: Shapes, book: &mut Book<'_>) -> Result<Arc<TractPlan>, Error> {
        match &self.form {
            Form::Symbolic(plan) => {
                plan.demand(&shapes)?;
                Ok(Arc::clone(plan))
            }
            Form::PerShape(plans) => {
                plans.plan(shapes.clone(), book).map_err(|failure| failure.of_shapes(&shapes))
            }
        }
    }
}

impl Graph for TractGraph {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn ready(&self, inputs: &[Tensor]) -> Result<Option<Arc<dyn Plan>>, Error> {
        match &self.form {
            Form::Symbolic(plan) => match plan.judged(inputs) {
                Some(verdict) => verdict.map(|()| Some(Arc::clone(plan) as Arc<dyn Plan>)),
                None => Ok(None),
            },
            Form::PerShape(plans) => Ok(plans.kept(inputs).map(|plan| plan as Arc<dyn Plan>)),
        }
    }

    fn prepare(&self, shapes: Shapes, book: &mut Book<'_>) -> Result<Arc<dyn Plan>, Error> {
        self.plan(shapes, book).map(|plan| plan as Arc<dyn Plan>)
    }

    fn made_per_shape(&self) -> bool {
        matches!(self.form, Form::PerShape(_))
    }

    fn weights(&self) -> Option<u64> {
        match &self.form {
            Form::Symbolic(plan) => Some(plan.weights()),
            Form::PerShape(_) => None,
        }
    }

    fn single(&self) -> Shapes {
        single(&self.signature.inputs)
    }

    fn host_operators(&self) -> Vec<String> {
        match &self.form {
            Form::Symbolic(plan) => plan.host_operators(),
            Form::PerShape(plans) => plans.host_operators(),
        }
    }
}

/// Whether `kept` are the shapes of these inputs.
fn are_shapes_of(kept: &[Vec<usize>], inputs: &[Tensor]) -> bool {
    kept.len() == inputs.len() && kept.iter().zip(inputs).all(|(shape, input)| shape == input.shape())
}

/// The symbol that an expression is, if it is nothing else.
fn symbol(dim: &TDim) -> Option<&Symbol> {
    match dim {
        TDim::Sym(symbol) => Some(symbol),
        _ => None,
    }
}

/// What is locked here is whole between any two statements, whatever panics while a lock is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
