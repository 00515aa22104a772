//! What stands between the operators of a graph whose tensors' sizes depend on data.
//!
//! The plan cannot tell how large these tensors get; their inputs can, right before the operator runs. What it is
//! about to ask of the allocator is worked out from the actual inputs and added to what lives already: an operator
//! that would pass the limit does not run. The allocator itself must never be asked for what there is not: a failed
//! allocation ends the process.

use std::collections::HashSet;

use tract_onnx::prelude::{IntoArcTensor, TValue, TypedModel};
use tract_onnx::tract_core::internal::{Symbol, SymbolValues, TypedFact};
use tract_onnx::tract_core::ops::array::Topk;
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_core::ops::logic::IfThenElse;
use tract_onnx::tract_core::ops::scan::{OptScan, Scan};

use super::demand::{self, Need, Node};
use super::extent::{Dims, Known, wide};
use super::operator;
use super::{EngineTensor, invalid};
use crate::Error;
use crate::examine::ModelLimits;

/// Input tensors of at most this many elements tell an operator its output's shape.
const MAX_SHAPE_ELEMENTS: usize = 64;

/// What does not change from run to run.
pub(super) struct Watch {
    /// For each step, the nodes whose outputs nobody needs after it.
    releases: Vec<Vec<usize>>,
    constants: u64,
}

/// The tensors of one run.
pub(super) struct Watching<'a> {
    watch: &'a Watch,
    model: &'a TypedModel,
    limits: &'a ModelLimits,
    step: usize,
    live: u64,
    /// The most bytes that were planned at one time.
    pub peak: u64,
    /// The cost of the costliest operator.
    pub cost: u64,
    held: Vec<u64>,
    expected: u64,
}

impl Watch {
    /// `None` for a model whose tensors' sizes all follow from its inputs' shapes.
    ///
    /// # Errors
    /// [`Error::Unbounded`] where neither shapes nor data tell in time how much an operator will write.
    pub fn of(model: &TypedModel, order: &[usize]) -> Result<Option<Self>, Error> {
        #[allow(clippy::mutable_key_type)]
        let inputs = inputs(model)?;
        check_bounded(model, order, &inputs, false)?;
        let late = order.iter().filter_map(|id| model.nodes().get(*id)).any(|node| {
            let unknown = node.outputs.iter().flat_map(|output| output.fact.shape.iter());
            // Of how many are to be the largest, a constant tells before any data does.
            let told =
                node.op_is::<Topk>() && node.outputs.iter().all(|output| output.fact.shape.is_concrete());
            !told && operator::depends_on_data(node)
                || unknown.flat_map(|dim| dim.symbols()).any(|symbol| !inputs.contains(&symbol))
        });
        let watch = || Self { releases: demand::releases(model, order), constants: demand::constants(model) };
        Ok(late.then(watch))
    }
}

type Symbols = HashSet<Symbol>;

/// The symbols that a graph's inputs give values to.
fn inputs(model: &TypedModel) -> Result<Symbols, Error> {
    #[allow(clippy::mutable_key_type)]
    let mut symbols = Symbols::new();
    for input in &model.inputs {
        let fact = model.outlet_fact(*input).map_err(invalid)?;
        symbols.extend(fact.shape.iter().flat_map(|dim| dim.symbols()));
    }
    Ok(symbols)
}

/// Looks for sizes that nothing tells in time: in the graph itself, those that do not come from an operator that is
/// understood; in graphs inside operators, where nobody stands between, those that have no bound.
#[allow(clippy::mutable_key_type)]
fn check_bounded(model: &TypedModel, order: &[usize], given: &Symbols, inside: bool) -> Result<(), Error> {
    let mut told = given.clone();
    let nodes = || order.iter().filter_map(|id| model.nodes().get(*id));
    for node in nodes() {
        let understood =
            if inside { operator::at_most_its_inputs(node) } else { operator::depends_on_data(node) };
        if understood {
            told.extend(symbols(node));
        }
    }
    for node in nodes().filter(|node| !node.op_is::<Const>()) {
        if symbols(node).any(|symbol| !told.contains(&symbol)) {
            return Err(Error::Unbounded { operator: demand::label(node) });
        }
        let bodies: Vec<&TypedModel> = if let Some(scan) = node.op_as::<OptScan>() {
            vec![scan.plan.model()]
        } else if let Some(scan) = node.op_as::<Scan>() {
            vec![&scan.body]
        } else if let Some(branches) = node.op_as::<IfThenElse>() {
            vec![&branches.then_body, &branches.else_body]
        } else {
            continue;
        };
        for body in bodies {
            let mut given = told.clone();
            given.extend(inputs(body)?);
            check_bounded(body, &body.eval_order().map_err(invalid)?, &given, true)?;
        }
    }
    Ok(())
}

fn symbols(node: &Node) -> impl Iterator<Item = Symbol> {
    node.outputs.iter().flat_map(|output| output.fact.shape.iter()).flat_map(|dim| dim.symbols())
}

impl<'a> Watching<'a> {
    pub fn new(watch: &'a Watch, model: &'a TypedModel, limits: &'a ModelLimits, inputs: &[TValue]) -> Self {
        let mut held = vec![0; model.nodes().len()];
        let mut live = 0u64;
        for (outlet, input) in model.inputs.iter().zip(inputs) {
            if let Some(held) = held.get_mut(outlet.node) {
                *held = size(input).unwrap_or(0);
                live = live.saturating_add(*held);
            }
        }
        let peak = live.saturating_add(watch.constants);
        Self { watch, model, limits, step: 0, live, peak, cost: 0, held, expected: 0 }
    }

    /// The bytes in the run's tensors while this operator runs, with what it writes and works on.
    ///
    /// # Errors
    /// [`Error::ModelMemory`], [`Error::OperatorCost`], and [`Error::Unbounded`] if it cannot be told.
    pub fn before(&mut self, node: &Node, inputs: &[TValue], symbols: &SymbolValues) -> Result<u64, Error> {
        if node.inputs.is_empty() {
            self.expected = 0;
            return Ok(self.live);
        }
        let need = self.need(node, inputs, symbols)?;
        let now = [self.watch.constants, self.live, need.outputs, need.workspace];
        let now = now.into_iter().fold(0, u64::saturating_add);
        demand::check(self.limits, node, now, need.cost)?;
        self.peak = self.peak.max(now);
        self.cost = self.cost.max(need.cost);
        self.expected = need.outputs;
        Ok(now.saturating_sub(self.watch.constants))
    }

    /// The bytes in the tensors that live on.
    pub fn after(&mut self, node: &Node, outputs: &[TValue]) -> u64 {
        if !node.inputs.is_empty() {
            let sizes = outputs.iter().map(size);
            // Packed forms do not tell their size.
            let written = sizes.sum::<Option<u64>>().unwrap_or(self.expected);
            self.live = self.live.saturating_add(written);
            if let Some(held) = self.held.get_mut(node.id) {
                *held = written;
            }
        }
        for released in self.watch.releases.get(self.step).into_iter().flatten() {
            let released = self.held.get(*released).copied().unwrap_or(0);
            self.live = self.live.saturating_sub(released);
        }
        self.step += 1;
        self.live
    }

    fn need(&self, node: &Node, inputs: &[TValue], symbols: &SymbolValues) -> Result<Need, Error> {
        let dims: Vec<Dims> =
            inputs.iter().map(|input| input.shape().iter().map(|dim| wide(*dim)).collect()).collect();
        if let Some(need) = operator::on_data(node, inputs, &dims, symbols) {
            return Ok(need);
        }
        let known = Known::new(symbols);
        let facts = self.model.node_input_facts(node.id).map_err(invalid)?;
        if let Some(need) = demand::of_operator(node, &facts, &dims, &known)? {
            return Ok(need);
        }
        // Its shape does not tell, so the operator is asked itself, with what it is about to be given.
        self.asked(node, inputs, &dims, &known)
            .ok_or_else(|| Error::Unbounded { operator: demand::label(node) })
    }

    fn asked(&self, node: &Node, inputs: &[TValue], dims: &[Dims], known: &Known<'_>) -> Option<Need> {
        if node.op_is::<OptScan>() || node.op_is::<Scan>() || node.op_is::<IfThenElse>() {
            return None;
        }
        let facts = inputs.iter().map(fact).collect::<Option<Vec<TypedFact>>>()?;
        let facts: Vec<&TypedFact> = facts.iter().collect();
        let outputs = node.op.output_facts(&facts).ok()?;
        let mut sizes = outputs.iter().map(|output| known.bytes(output));
        let written = sizes.try_fold(0u64, |sum, size| Some(sum.saturating_add(size?)))?;
        let outputs = outputs.iter().map(|output| known.dims(output)).collect::<Option<Vec<Dims>>>()?;
        let (workspace, cost) = operator::figures(node, &facts, dims, &outputs);
        Some(Need { outputs: written, workspace, cost })
    }
}

/// What the engine would know of a tensor that it has.
fn fact(value: &TValue) -> Option<TypedFact> {
    let tensor: &EngineTensor = value;
    tensor.as_plain_ram_storage()?;
    let mut fact = TypedFact::shape_and_dt_of(tensor);
    if tensor.len() <= MAX_SHAPE_ELEMENTS {
        fact.konst = Some(value.clone().into_arc_tensor());
    }
    Some(fact)
}

/// Bytes of a plain tensor.
fn size(value: &TValue) -> Option<u64> {
    value.as_plain_ram_storage().map(|storage| wide(storage.as_bytes().len()))
}
