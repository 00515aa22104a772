//! A model prepared for certain shapes, or for all of them.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tract_onnx::prelude::{IntoRunnable, SymbolValues, TValue, TVec, TypedModel, TypedRunnableModel};
use tract_onnx::tract_core;
use tract_onnx::tract_core::internal::TypedFact;
use tract_onnx::tract_core::ops::logic::IfThenElse;
use tract_onnx::tract_core::ops::scan::{OptScan, Scan};

use super::away::Away;
use super::convert::{from_engine, to_engine};
use super::demand::{self, Demand, Step};
use super::extent::{self, Known};
use super::watch::{Watch, Watching};
use super::{EngineError, Outputs, Shapes, Tract, are_shapes_of, failed, invalid, lock};
use crate::Error;
use crate::backend::{Between, Plan};
use crate::tensor::Tensor;

/// Shapes whose verdict a plan for all shapes remembers.
const MAX_VERDICTS: usize = 16;

pub(super) struct TractPlan {
    runnable: Arc<TypedRunnableModel>,
    /// Whether all runs do the same work, whatever the data: there is no shape in it that is not known, and no loop or
    /// branch.
    steady: bool,
    /// Nanoseconds that the last run took.
    last_run: AtomicU64,
    outputs: Outputs,
    engine: Tract,
    judged: Judged,
    /// Bytes of its constants.
    weights: u64,
    /// Where tensors' sizes depend on data.
    watch: Option<Watch>,
    /// Let go with the plan, after all else of it.
    held: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// What the plan needs, and whether that is within the limits.
enum Judged {
    /// Its inputs have one shape, which was judged when the plan was made.
    Once(Verdict),
    /// For each shape of the inputs; the newest last.
    PerShape(Mutex<VecDeque<(Shapes, Result<Verdict, Error>)>>),
}

/// A run that is within the limits.
#[derive(Clone)]
struct Verdict {
    demand: Demand,
    steps: Arc<[Step]>,
}

/// # Errors
/// What passes the limits.
fn judge(model: &TypedModel, order: &[usize], known: &Known<'_>, engine: &Tract) -> Result<Verdict, Error> {
    let (demand, steps) = demand::of_plan(model, order, known, &engine.limits)?;
    Ok(Verdict { demand, steps: steps.into() })
}

impl TractPlan {
    /// # Errors
    /// What the engine has against the model; a plan for one shape that passes the limits; operators that write nobody
    /// knows how much; [`Error::NotOnGpu`].
    pub fn new(model: TypedModel, outputs: Outputs, engine: Tract) -> Result<Arc<Self>, Error> {
        let steady = model.nodes().iter().all(|node| {
            let known = node.outputs.iter().all(|output| output.fact.shape.as_concrete().is_some());
            known && !node.op_is::<Scan>() && !node.op_is::<OptScan>() && !node.op_is::<IfThenElse>()
        });
        let runnable = model.into_runnable().map_err(invalid)?;
        let (model, order) = (runnable.model(), runnable.order_without_consts());
        let watch = Watch::of(model, order)?;
        if watch.is_some() && engine.accelerator.is_some() {
            // Who looks at tensors before each operator would have to bring them back from the device first.
            return Err(Error::NotOnGpu("the sizes of its tensors depend on data".to_owned()));
        }
        let judged = if inputs(model)?.iter().all(|fact| fact.shape.as_concrete().is_some()) {
            let values = SymbolValues::default();
            Judged::Once(judge(model, order, &Known::new(&values), &engine)?)
        } else {
            Judged::PerShape(Mutex::default())
        };
        // Data decides how long a run takes where it decides sizes.
        let steady = steady && watch.is_none();
        let last_run = AtomicU64::new(u64::MAX);
        let weights = demand::constants(model);
        Ok(Arc::new(Self {
            runnable,
            steady,
            last_run,
            outputs,
            engine,
            judged,
            weights,
            watch,
            held: OnceLock::new(),
        }))
    }

    /// Bytes of its constants.
    pub fn weights(&self) -> u64 {
        self.weights
    }

    /// Has something be let go when the plan is. What was given before stays.
    pub fn has(&self, held: Box<dyn Any + Send + Sync>) {
        let _ = self.held.set(held);
    }

    /// The verdict on these inputs' shapes, if there is one already.
    pub fn judged(&self, inputs: &[Tensor]) -> Option<Result<(), Error>> {
        match &self.judged {
            Judged::Once(_) => Some(Ok(())),
            Judged::PerShape(verdicts) => {
                let verdicts = lock(verdicts);
                let found = verdicts.iter().rev().find(|(shapes, _)| are_shapes_of(shapes, inputs));
                found.map(|(_, verdict)| verdict.clone().map(|_| ()))
            }
        }
    }

    /// What a run on inputs of these shapes needs.
    ///
    /// # Errors
    /// What passes the limits.
    pub fn demand(&self, shapes: &[Vec<usize>]) -> Result<Demand, Error> {
        self.verdict(shapes).map(|verdict| verdict.demand)
    }

    fn verdict(&self, shapes: &[Vec<usize>]) -> Result<Verdict, Error> {
        let verdicts = match &self.judged {
            Judged::Once(verdict) => return Ok(verdict.clone()),
            Judged::PerShape(verdicts) => verdicts,
        };
        if let Some((_, verdict)) = lock(verdicts).iter().find(|(kept, _)| kept == shapes) {
            return verdict.clone();
        }
        let model = self.runnable.model();
        let facts = inputs(model)?;
        let values = extent::bind(facts.into_iter(), shapes.iter().map(Vec::as_slice));
        let order = self.runnable.order_without_consts();
        let verdict = judge(model, order, &Known::new(&values), &self.engine);
        let mut verdicts = lock(verdicts);
        if verdicts.len() >= MAX_VERDICTS {
            verdicts.pop_front();
        }
        verdicts.push_back((shapes.to_vec(), verdict.clone()));
        verdict
    }

    pub fn host_operators(&self) -> Vec<String> {
        let model = self.runnable.model();
        self.engine.accelerator.as_ref().map(|device| device.host_operators(model)).unwrap_or_default()
    }

    /// Runs the graph; besides the outputs, what was seen to be needed where the plan did not tell.
    pub fn execute(
        &self,
        inputs: Vec<Tensor>,
        between: &mut dyn Between,
    ) -> Result<(Vec<Tensor>, Demand), Error> {
        let shapes: Shapes = inputs.iter().map(|input| input.shape().to_vec()).collect();
        // Where data decides, the steps are only known as they come.
        let steps = if self.watch.is_none() { self.verdict(&shapes)?.steps } else { Arc::default() };
        let mut steps = steps.iter();
        let inputs = inputs.iter().map(to_engine).collect::<Result<TVec<TValue>, Error>>()?;
        let started = Instant::now();
        let mut away = Away::new(self.engine.accelerator.as_deref(), between);
        let mut state = self.runnable.spawn().map_err(failed)?;
        let model = self.runnable.model();
        let mut watching =
            self.watch.as_ref().map(|watch| Watching::new(watch, model, &self.engine.limits, &inputs));
        let run = || {
            state.run_plan_with_eval(inputs, |context, state, node, inputs| -> Result<_, EngineError> {
                let Some(watching) = &mut watching else {
                    let Step { during, after } = steps.next().copied().unwrap_or_default();
                    if let Some(accelerator) = &self.engine.accelerator {
                        accelerator.check(model, node, &inputs)?;
                    }
                    away.before(during)?;
                    let outputs = tract_core::plan::eval(context, state, node, inputs)?;
                    away.after(after);
                    return Ok(outputs);
                };
                away.before(watching.before(node, &inputs, context.symbols)?)?;
                let outputs = tract_core::plan::eval(context, state, node, inputs)?;
                away.after(watching.after(node, &outputs));
                Ok(outputs)
            })
        };
        let outputs = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(outputs)) => away.bring_back(outputs)?,
            Ok(Err(error)) => return Err(away.of_error(error)),
            Err(panic) => return Err(away.of_panic(panic)),
        };
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_run.store(took, Ordering::Relaxed);
        let seen = watching.map_or(Demand::default(), |watching| Demand {
            memory: watching.peak,
            operator_cost: watching.cost,
        });
        let outputs = outputs.into_iter().zip(&*self.outputs).map(|(value, spec)| from_engine(value, spec));
        Ok((outputs.collect::<Result<_, _>>()?, seen))
    }
}

fn inputs(model: &TypedModel) -> Result<Vec<&TypedFact>, Error> {
    model.inputs.iter().map(|outlet| model.outlet_fact(*outlet).map_err(invalid)).collect()
}

impl Drop for TractPlan {
    fn drop(&mut self) {
        if let Some(accelerator) = &self.engine.accelerator {
            accelerator.enter();
        }
    }
}

impl Plan for TractPlan {
    fn steady(&self) -> Option<Duration> {
        self.steady.then(|| Duration::from_nanos(self.last_run.load(Ordering::Relaxed)))
    }

    fn run(&self, inputs: Vec<Tensor>, between: &mut dyn Between) -> Result<Vec<Tensor>, Error> {
        self.execute(inputs, between).map(|(outputs, _)| outputs)
    }
}
