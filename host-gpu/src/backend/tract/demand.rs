//! What a prepared graph will need, worked out before it runs.
//!
//! The plan's order and the shapes tell which tensors live at each step; the largest sum, with the constants, is what
//! the run needs at one time. One pass over the nodes, in checked arithmetic, because graphs have up to 100,000 nodes
//! and shapes are the tenant's. An operator whose outputs depend on data counts nothing here and is looked at again
//! right before it runs (see [`super::watch`]).

use tract_onnx::prelude::TypedModel;
use tract_onnx::tract_core::internal::{TypedFact, TypedOp};
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_core::ops::logic::IfThenElse;
use tract_onnx::tract_core::ops::scan::{InputMapping, OptScan, Scan};

use super::extent::{Dims, Known, wide};
use super::operator;
use super::{EngineError, invalid};
use crate::Error;
use crate::examine::ModelLimits;

pub(super) type Node = tract_onnx::prelude::Node<TypedFact, Box<dyn TypedOp>>;

/// What a run needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Bytes at one time: constants and live tensors.
    pub memory: u64,
    /// Multiply-adds, or elements written where they are more, of the costliest operator.
    pub operator_cost: u64,
}

/// Bytes in the tensors of a run: while an operator runs, with what it writes and works on, and after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub during: u64,
    pub after: u64,
}

/// What one operator needs while it runs, besides its inputs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Need {
    /// Bytes of its outputs.
    pub outputs: u64,
    /// Bytes that it gives back when it ends.
    pub workspace: u64,
    pub cost: u64,
}

impl Demand {
    pub fn max(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            operator_cost: self.operator_cost.max(other.operator_cost),
        }
    }
}

/// What a whole graph, or a graph inside an operator, needs.
#[derive(Default)]
struct Totals {
    constants: u64,
    peak: u64,
    /// Of all operators together.
    cost: u64,
    costliest: u64,
    /// In the plan's order.
    steps: Vec<Step>,
}

/// For each step of an order, the nodes whose outputs nobody needs after it.
pub(super) fn releases(model: &TypedModel, order: &[usize]) -> Vec<Vec<usize>> {
    const NEVER: usize = usize::MAX;
    let mut last_use = vec![NEVER; model.nodes().len()];
    let mut note = |node: usize, step: usize| {
        if let Some(last) = last_use.get_mut(node) {
            *last = step;
        }
    };
    for (step, node) in order.iter().filter_map(|id| model.nodes().get(*id)).enumerate() {
        node.inputs.iter().for_each(|input| note(input.node, step));
    }
    model.outputs.iter().for_each(|output| note(output.node, NEVER));
    let mut releases = vec![Vec::new(); order.len()];
    for (node, step) in last_use.into_iter().enumerate() {
        if let Some(released) = releases.get_mut(step) {
            released.push(node);
        }
    }
    releases
}

/// What a run of `model` in this order needs, and what it holds at each step.
///
/// # Errors
/// [`Error::ModelMemory`] and [`Error::OperatorCost`] for what passes the limits.
pub(super) fn of_plan(
    model: &TypedModel,
    order: &[usize],
    known: &Known<'_>,
    limits: &ModelLimits,
) -> Result<(Demand, Vec<Step>), Error> {
    let totals = totals(model, order, known, Some(limits))?.unwrap_or_default();
    let memory = totals.constants.saturating_add(totals.peak);
    Ok((Demand { memory, operator_cost: totals.costliest }, totals.steps))
}

/// Bytes of a graph's constants, those that are folded into its operators included.
pub(super) fn constants(model: &TypedModel) -> u64 {
    let none = Default::default();
    let known = Known::new(&none);
    let sizes = model.nodes().iter().map(|node| {
        let outputs = node.outputs.iter().filter(|_| node.op_is::<Const>());
        let sizes = outputs.filter_map(|output| known.bytes(&output.fact));
        sizes.fold(operator::folded(node, &known), u64::saturating_add)
    });
    sizes.fold(0, u64::saturating_add)
}

/// `limits`: those of the whole graph. Without them this is a graph inside an operator, all of which has to be known:
/// `None` where it is not.
fn totals(
    model: &TypedModel,
    order: &[usize],
    known: &Known<'_>,
    limits: Option<&ModelLimits>,
) -> Result<Option<Totals>, Error> {
    let mut totals = Totals { constants: constants(model), ..Totals::default() };
    let releases = releases(model, order);
    let mut held = vec![0u64; model.nodes().len()];
    // The inputs are there from the start.
    let mut live = 0u64;
    let mut given = vec![false; model.nodes().len()];
    for input in &model.inputs {
        if let Some(given) = given.get_mut(input.node) {
            *given = true;
        }
        let fact = model.outlet_fact(*input).map_err(invalid)?;
        let size = known.bytes(fact).unwrap_or(0);
        if let Some(held) = held.get_mut(input.node) {
            live = live.saturating_add(size);
            *held = size;
        }
    }
    for (id, released) in order.iter().zip(&releases) {
        let Some(node) = model.nodes().get(*id) else { continue };
        let mut during = live;
        if !given.get(*id).copied().unwrap_or(false) {
            let need = match (of_node(model, node, known)?, limits) {
                (Some(need), _) => need,
                (None, Some(_)) => Need::default(),
                (None, None) => return Ok(None),
            };
            let now = live.saturating_add(need.outputs).saturating_add(need.workspace);
            during = now;
            totals.peak = totals.peak.max(now);
            totals.cost = totals.cost.saturating_add(need.cost);
            totals.costliest = totals.costliest.max(need.cost);
            if let Some(limits) = limits {
                check(limits, node, totals.constants.saturating_add(now), need.cost)?;
            }
            live = live.saturating_add(need.outputs);
            if let Some(held) = held.get_mut(*id) {
                *held = need.outputs;
            }
        }
        for released in released {
            live = live.saturating_sub(held.get(*released).copied().unwrap_or(0));
        }
        if limits.is_some() {
            totals.steps.push(Step { during, after: live });
        }
    }
    totals.peak = totals.peak.max(live);
    if let Some(limits) = limits {
        check_memory(limits, totals.constants.saturating_add(totals.peak))?;
    }
    Ok(Some(totals))
}

/// # Errors
/// [`Error::ModelMemory`], [`Error::OperatorCost`].
pub(super) fn check(limits: &ModelLimits, node: &Node, memory: u64, cost: u64) -> Result<(), Error> {
    check_memory(limits, memory)?;
    if cost > limits.operator_cost {
        return Err(Error::OperatorCost { operator: label(node), needed: cost, most: limits.operator_cost });
    }
    Ok(())
}

pub(super) fn check_memory(limits: &ModelLimits, memory: u64) -> Result<(), Error> {
    if memory > limits.memory {
        return Err(Error::ModelMemory { needed: memory, most: limits.memory });
    }
    Ok(())
}

/// An operator as errors name it: what it is, and the model's name for it.
pub(super) fn label(node: &Node) -> String {
    let name: String = node.name.chars().take(100).collect();
    format!("{} {name}", node.op.name())
}

/// What a node needs, as far as the shapes tell; `None` where they do not.
fn of_node(model: &TypedModel, node: &Node, known: &Known<'_>) -> Result<Option<Need>, Error> {
    let facts = model.node_input_facts(node.id).map_err(invalid)?;
    let Some(inputs) = facts.iter().map(|fact| known.dims(fact)).collect::<Option<Vec<Dims>>>() else {
        return Ok(None);
    };
    of_operator(node, &facts, &inputs, known)
}

/// The same, for inputs of these extents.
pub(super) fn of_operator(
    node: &Node,
    facts: &[&TypedFact],
    inputs: &[Dims],
    known: &Known<'_>,
) -> Result<Option<Need>, Error> {
    let mut outputs = Vec::with_capacity(node.outputs.len());
    let mut size = 0u64;
    for output in &node.outputs {
        let (Some(dims), Some(bytes)) = (known.dims(&output.fact), known.bytes(&output.fact)) else {
            return Ok(None);
        };
        size = size.saturating_add(bytes);
        outputs.push(dims);
    }
    let Some(inner) = of_bodies(node, inputs, known)? else { return Ok(None) };
    let stated = stated_cost(node, facts, known);
    let (workspace, cost) = operator::figures(node, facts, inputs, &outputs);
    Ok(Some(Need {
        outputs: size,
        workspace: workspace.saturating_add(inner.workspace),
        cost: cost.max(stated).max(inner.cost),
    }))
}

/// Multiply-adds and divisions as the engine counts them.
fn stated_cost(node: &Node, facts: &[&TypedFact], known: &Known<'_>) -> u64 {
    let stated = node.op.cost(facts).unwrap_or_default();
    let compute = stated.iter().filter(|(kind, _)| kind.is_compute());
    compute.filter_map(|(_, count)| known.extent(count)).fold(0, u64::saturating_add)
}

/// What the graphs inside an operator need: a loop all its turns, a branch the larger one.
fn of_bodies(node: &Node, inputs: &[Dims], known: &Known<'_>) -> Result<Option<Need>, Error> {
    if let Some(scan) = node.op_as::<OptScan>() {
        let (model, order) = (scan.plan.model(), scan.plan.order_without_consts());
        return of_loop(model, order, &scan.input_mapping, inputs, known);
    }
    if let Some(scan) = node.op_as::<Scan>() {
        let order = eval_order(&scan.body)?;
        return of_loop(&scan.body, &order, &scan.input_mapping, inputs, known);
    }
    if let Some(branches) = node.op_as::<IfThenElse>() {
        let mut largest = Need::default();
        for (body, mapping) in [
            (&branches.then_body, &branches.then_input_mapping),
            (&branches.else_body, &branches.else_input_mapping),
        ] {
            let given = mapping.iter().map(|slot| inputs.get(*slot).cloned());
            let Some(totals) = of_body(body, &eval_order(body)?, given, known)? else { return Ok(None) };
            // The branch is copied for each run, its constants are not.
            largest.workspace = largest.workspace.max(totals.constants.saturating_add(totals.peak));
            largest.cost = largest.cost.max(totals.cost);
        }
        return Ok(Some(largest));
    }
    Ok(Some(Need::default()))
}

fn of_loop(
    model: &TypedModel,
    order: &[usize],
    mapping: &[InputMapping],
    inputs: &[Dims],
    known: &Known<'_>,
) -> Result<Option<Need>, Error> {
    let mut turns = 1;
    let given = mapping.iter().zip(inputs).map(|(mapping, dims)| {
        let mut dims = dims.clone();
        if let InputMapping::Scan(info) = mapping
            && let Some(dim) = dims.get_mut(info.axis)
        {
            let chunk = wide(info.chunk.unsigned_abs()).max(1);
            turns = turns.max(dim.div_ceil(chunk));
            *dim = chunk;
        }
        Some(dims)
    });
    let given: Vec<Option<Dims>> = given.collect();
    let Some(totals) = of_body(model, order, given.into_iter(), known)? else { return Ok(None) };
    Ok(Some(Need {
        outputs: 0,
        workspace: totals.constants.saturating_add(totals.peak),
        cost: totals.cost.saturating_mul(turns),
    }))
}

/// A graph inside an operator, whose inputs have these extents.
fn of_body(
    model: &TypedModel,
    order: &[usize],
    given: impl Iterator<Item = Option<Dims>>,
    known: &Known<'_>,
) -> Result<Option<Totals>, Error> {
    let mut known = known.child();
    for (input, given) in model.inputs.iter().zip(given) {
        let fact = model.outlet_fact(*input).map_err(invalid)?;
        for (dim, size) in fact.shape.iter().zip(given.iter().flatten()) {
            if let Some(symbol) = super::symbol(dim)
                && !known.has(symbol)
            {
                known.set(symbol, *size);
            }
        }
    }
    // What depends on data inside counts its bound: nobody stands between the operators there.
    for node in order.iter().filter_map(|id| model.nodes().get(*id)) {
        for (symbol, most) in operator::bounds(model, node, &known)? {
            known.bound(&symbol, most);
        }
    }
    totals(model, order, &known, None)
}

fn eval_order(model: &TypedModel) -> Result<Vec<usize>, Error> {
    let mut order = model.eval_order().map_err(|error: EngineError| invalid(error))?;
    order.retain(|id| !model.nodes().get(*id).is_some_and(|node| node.op_is::<Const>()));
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tract_onnx::prelude::{SymbolValues, TypedModel};
    use tract_onnx::tract_core::internal::{DatumExt as _, SpecialOps as _};
    use tract_onnx::tract_core::ops::math::tanh;

    fn chain(nodes: usize) -> (TypedModel, Vec<usize>) {
        let mut model = TypedModel::default();
        let rows = model.symbols.sym("n");
        let mut wire = model.add_source("x", f32::fact([rows])).unwrap();
        for node in 0..nodes {
            wire = model.wire_node(format!("t{node}"), tanh(), &[wire]).unwrap()[0];
        }
        model.select_output_outlets(&[wire]).unwrap();
        let order = model.eval_order().unwrap();
        (model, order)
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_product_on_a_device_counts_as_it_would_here() {
        use tract_gpu::fact::DeviceFact;
        let there = |fact: TypedFact| DeviceFact::from_host(fact).unwrap().into_exotic_fact();
        let mut model = TypedModel::default();
        let a = model.add_source("a", there(f32::fact([1, 8, 100]))).unwrap();
        let b = model.add_source("b", there(f32::fact([1, 50, 100]))).unwrap();
        let product = model.wire_node("product", tract_cuda::ops::CudaGgmlGemm, &[a, b]).unwrap();
        model.select_output_outlets(&product).unwrap();
        let (order, values) = (model.eval_order().unwrap(), SymbolValues::default());
        let planned = of_plan(&model, &order, &Known::new(&values), &ModelLimits::default()).unwrap();
        let inputs = 4 * (8 * 100 + 50 * 100);
        let demand = Demand { memory: inputs + 4 * 8 * 50, operator_cost: 8 * 50 * 100 };
        assert_eq!(planned.0, demand);
        assert_eq!(planned.1.last().unwrap().after, 4 * 8 * 50);
        let few = ModelLimits { operator_cost: 39_999, ..ModelLimits::default() };
        assert!(of_plan(&model, &order, &Known::new(&values), &few).is_err());
    }

    /// Time that this thread was on a core: what else the machine does is not in it. Nanoseconds.
    fn on_core() -> u64 {
        let stats = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        stats.split(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    fn planning_takes_one_pass_over_the_nodes() {
        let plan = |(model, order): &(TypedModel, Vec<usize>), times: usize| {
            let values = SymbolValues::default().with(&model.symbols.sym("n"), 10);
            let started = on_core();
            for _ in 0..times {
                let watch = super::super::watch::Watch::of(model, order).unwrap();
                assert!(watch.is_none());
                let (demand, steps) =
                    of_plan(model, order, &Known::new(&values), &ModelLimits::default()).unwrap();
                assert_eq!(steps.len(), order.len());
                assert_eq!(demand, Demand { memory: 80, operator_cost: 120 });
            }
            on_core() - started
        };
        let (short, long) = (chain(2_000), chain(20_000));
        // The same number of nodes each; if the time grew with their square, it would be ten times as much.
        let (many, one) = (plan(&short, 50), plan(&long, 5));
        assert!(one < many * 4, "{one} ns for 5 times 20,000 nodes, {many} ns for 50 times 2,000");
    }
}
