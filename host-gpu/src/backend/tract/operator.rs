//! What operators do that their output shapes do not tell: work, and memory that they give back when they end.
//!
//! The engine states multiply-adds for products and convolutions. For the rest, each operator reads all its inputs and
//! writes all its outputs, which is the least that is counted; those that do more are listed here. Operators of engine
//! crates that this one does not link are told by what they call themselves, which no model can choose.

use tract_onnx::prelude::{TValue, TypedModel};
use tract_onnx::tract_core::internal::{Symbol, SymbolValues, TDim, TypedFact};
use tract_onnx::tract_core::ops::array::{DynSlice, DynTile, Range, Tile, Topk};
use tract_onnx::tract_core::ops::cnn::{Conv, Deconv, MaxPool, OptMaxPool, OptSumPool, PoolSpec, SumPool};
use tract_onnx::tract_core::ops::gru_seq::GruSeq;
use tract_onnx::tract_core::ops::matmul::optimized::{MatMulOperand, OptMatMul, ProtoFusedSpec};

use super::demand::{Need, Node};
use super::extent::{Dims, Known, bytes, elements, wide};
use super::{EngineTensor, invalid, symbol};
use crate::Error;

/// Bytes of the tables that a pooling window takes for each of its elements and axes.
const WINDOW_BYTES: u64 = 32;
/// Multiply-adds for each element of a resampled image: the largest window that is not an average of inputs.
const RESAMPLING: u64 = 16;
/// Comparisons for each element that is sorted, and butterflies for each that is transformed: a logarithm's worth.
const LOGARITHM: u64 = 64;

/// Workspace in bytes and cost in multiply-adds of an operator on tensors of these extents. The cost is at least the
/// elements of its largest input or output.
pub(super) fn figures(node: &Node, facts: &[&TypedFact], inputs: &[Dims], outputs: &[Dims]) -> (u64, u64) {
    let first = inputs.first().map_or(&[][..], |dims| dims);
    let out = outputs.first().map_or(&[][..], |dims| dims);
    let size_of = facts.first().map_or(0, |fact| fact.datum_type.size_of());
    let touched = inputs.iter().chain(outputs).map(|dims| elements(dims)).max().unwrap_or(0);
    let (workspace, cost) = special(node, first, inputs, out, size_of, touched);
    (workspace, cost.max(touched))
}

fn special(
    node: &Node,
    first: &[u64],
    inputs: &[Dims],
    out: &[u64],
    size_of: usize,
    touched: u64,
) -> (u64, u64) {
    if let Some(window) = pooling(node) {
        let (volume, rank) = (volume(window), wide(window.kernel_shape.len()));
        let tables = volume.saturating_mul(rank).saturating_mul(WINDOW_BYTES);
        return (tables, volume.saturating_mul(elements(out)).max(volume));
    }
    if let Some(conv) = node.op_as::<Conv>() {
        // Not lowered, because its shape varies: it is lowered for each run, to a product of unfolded windows.
        let volume = volume(&conv.pool_spec);
        let points = elements(out) / wide(conv.pool_spec.output_channels).max(1);
        let unfolded = points.saturating_mul(volume).saturating_mul(wide(conv.pool_spec.input_channels));
        let padded = elements(first).saturating_add(unfolded).saturating_add(touched);
        return (padded.saturating_mul(wide(size_of)), unfolded);
    }
    if let Some(deconv) = node.op_as::<Deconv>() {
        let channels = wide(deconv.pool_spec.output_channels) / wide(deconv.group).max(1);
        let products =
            elements(first).saturating_mul(channels.max(1)).saturating_mul(volume(&deconv.pool_spec));
        return (products.saturating_mul(wide(size_of)), products);
    }
    if let Some(gru) = node.op_as::<GruSeq>() {
        // [batch, turns, inputs]
        let steps = elements(first.get(..2).unwrap_or(first));
        let gates = steps.saturating_mul(wide(gru.hidden)).saturating_mul(3);
        let width = first.get(2).copied().unwrap_or(1).saturating_add(wide(gru.hidden));
        return (gates.saturating_mul(8), gates.saturating_mul(width));
    }
    if node.op_is::<Tile>() {
        return (axis_by_axis(first, out, size_of), 0);
    }
    let dim = |input: usize, axis: usize| {
        inputs.get(input).and_then(|dims| dims.get(axis)).copied().unwrap_or(1).max(1)
    };
    match node.op.name().as_ref() {
        "Resize" => {
            // In f32, whatever its element type.
            let largest = axis_by_axis(first, out, 4);
            (largest.saturating_mul(2), largest.saturating_mul(RESAMPLING))
        }
        // Not lowered to a product of packed matrices: its operands are copied.
        "EinSum" => {
            let copies = inputs.iter().map(|dims| elements(dims)).fold(0, u64::saturating_add);
            (copies.saturating_mul(wide(size_of)), 0)
        }
        "GridSample" => (0, touched.saturating_mul(RESAMPLING)),
        "Topk" | "Fft" => (elements(first).saturating_mul(16), touched.saturating_mul(LOGARITHM)),
        // Each box against each one that is selected, of each class.
        "NonMaxSuppression" => {
            let boxes = dim(1, 2);
            let candidates = dim(1, 0).saturating_mul(dim(1, 1)).saturating_mul(boxes);
            (candidates.saturating_mul(48), candidates.saturating_mul(boxes))
        }
        "Lrn" | "Multinomial" => (0, touched.saturating_mul(dim(0, 1))),
        "DepthwiseDeconv" => {
            let kernel = inputs.first().map_or(1, |dims| elements(dims)) / dim(0, 0);
            (0, inputs.get(1).map_or(1, |dims| elements(dims)).saturating_mul(kernel))
        }
        // Queries against keys: [batch, (heads,) rows, width] each.
        "SDPA" | "FlashSDPA" | "StreamedSDPA" | "CudaFlashAttention" => {
            let width = first.last().copied().unwrap_or(1).max(1);
            let keys = inputs.get(1).and_then(|dims| dims.iter().nth_back(1)).copied().unwrap_or(1);
            let scores = (elements(first) / width).saturating_mul(keys);
            let copies = inputs.iter().map(|dims| elements(dims)).fold(elements(out), u64::saturating_add);
            let workspace = scores.saturating_mul(3).saturating_add(copies.saturating_mul(2));
            (workspace.saturating_mul(4), scores.saturating_mul(width).saturating_mul(2))
        }
        // On a GPU: [.., rows, width] against [.., columns, width].
        "CudaGgmlGemm" | "CudaRingGemm" => {
            (0, elements(out).saturating_mul(first.last().copied().unwrap_or(1)))
        }
        // [batch, channels, ..] against [outputs, channels of a group, ..].
        "CudaConv" => {
            let kernel = inputs.get(1).map_or(1, |dims| elements(dims)) / dim(1, 0);
            (0, elements(out).saturating_mul(kernel))
        }
        // Each tree for each row; a row of outputs has at least one column.
        "TreeEnsembleClassifier" => (0, touched.saturating_mul(LOGARITHM)),
        _ => (0, 0),
    }
}

/// Bytes of the constants that are folded into an operator: packed weights.
pub(super) fn folded(node: &Node, known: &Known<'_>) -> u64 {
    if let Some(gru) = node.op_as::<GruSeq>() {
        let recurrent = wide(gru.hidden).saturating_mul(wide(gru.hidden)).saturating_mul(3 * 4);
        return if gru.packed_r.is_some() { recurrent } else { 0 };
    }
    let Some(product) = node.op_as::<OptMatMul>() else { return 0 };
    let operands = product.micro_ops.iter().flat_map(|op| match op {
        ProtoFusedSpec::AddMatMul { a, b, .. } => vec![a, b],
        _ => Vec::new(),
    });
    let sizes = operands.filter_map(|operand| match operand {
        MatMulOperand::Const(packed) => {
            let (inner, outer) = (TDim::from(packed.k()), TDim::from(packed.mn()));
            known.extent(&packed.format().mem_size(inner, outer))
        }
        MatMulOperand::Input(_) => None,
    });
    sizes.fold(0, u64::saturating_add)
}

fn pooling(node: &Node) -> Option<&PoolSpec> {
    let spec = node.op_as::<MaxPool>().map(|op| &op.pool_spec);
    let spec = spec.or_else(|| node.op_as::<OptMaxPool>().map(|op| &op.pool_spec));
    let spec = spec.or_else(|| node.op_as::<SumPool>().map(|op| &op.pool_spec));
    spec.or_else(|| node.op_as::<OptSumPool>().map(|op| &op.pool_spec))
}

/// Elements of a window.
fn volume(spec: &PoolSpec) -> u64 {
    spec.kernel_shape.iter().fold(1, |volume, dim| volume.saturating_mul(wide(*dim)))
}

/// The most bytes of a tensor that is brought from one shape to another one axis at a time: it can be larger on the way
/// than at either end.
fn axis_by_axis(from: &[u64], to: &[u64], size_of: usize) -> u64 {
    let mut dims = Dims::from(from);
    let mut most = bytes(&dims, size_of);
    for (axis, size) in to.iter().enumerate() {
        if let Some(slot) = dims.get_mut(axis) {
            *slot = *size;
        }
        most = most.max(bytes(&dims, size_of));
    }
    most
}

/// Whether the size of an operator's output is known only when it runs, and then before it runs: from the values of its
/// inputs, or as at most the size of its inputs.
pub(super) fn depends_on_data(node: &Node) -> bool {
    node.op_is::<Range>() || node.op_is::<Topk>() || node.op_is::<DynTile>() || at_most_its_inputs(node)
}

/// Whether the size of an operator's output depends on data, up to a bound that its inputs' shapes tell.
pub(super) fn at_most_its_inputs(node: &Node) -> bool {
    node.op_is::<DynSlice>() || matches!(node.op.name().as_ref(), "NonZero" | "NonMaxSuppression")
}

/// The symbols that such an operator gives a value to, with the most that they can be.
pub(super) fn bounds(
    model: &TypedModel,
    node: &Node,
    known: &Known<'_>,
) -> Result<Vec<(Symbol, u64)>, Error> {
    if !at_most_its_inputs(node) {
        return Ok(Vec::new());
    }
    let facts = model.node_input_facts(node.id).map_err(invalid)?;
    let Some(inputs) = facts.iter().map(|fact| known.dims(fact)).collect::<Option<Vec<_>>>() else {
        return Ok(Vec::new());
    };
    let most = most_selected(node, &inputs);
    let dims = node.outputs.iter().flat_map(|output| output.fact.shape.iter());
    let fresh = dims.filter_map(symbol).filter(|symbol| !known.has(symbol));
    Ok(fresh.map(|symbol| (symbol.clone(), most)).collect())
}

fn most_selected(node: &Node, inputs: &[Dims]) -> u64 {
    let first = inputs.first().map_or(&[][..], |dims| dims);
    if let Some(slice) = node.op_as::<DynSlice>() {
        return first.get(slice.axis).copied().unwrap_or(1);
    }
    match node.op.name().as_ref() {
        // All boxes of all classes.
        "NonMaxSuppression" => inputs.get(1).map_or(0, |scores| elements(scores)),
        _ => elements(first),
    }
}

/// What an operator that depends on data will need on these inputs; `None` for any other operator.
pub(super) fn on_data(node: &Node, inputs: &[TValue], dims: &[Dims], symbols: &SymbolValues) -> Option<Need> {
    let first = dims.first().map_or(&[][..], |dims| dims);
    let size_of = inputs.first().map_or(0, |input| input.datum_type().size_of());
    let plain = |written: u64, size_of: usize| Need {
        outputs: written.saturating_mul(wide(size_of)),
        workspace: 0,
        cost: written,
    };
    if node.op_is::<Range>() {
        let written = match inputs {
            [start, end, step] => range_length(start, end, step, symbols).unwrap_or(u64::MAX),
            _ => u64::MAX,
        };
        return Some(plain(written, size_of.max(8)));
    }
    if let Some(top) = node.op_as::<Topk>() {
        let mut out = Dims::from(first);
        let k = inputs.get(1).and_then(|k| k.cast_to_scalar::<i64>().ok());
        if let Some(slot) = out.get_mut(top.axis) {
            *slot = k.and_then(|k| u64::try_from(k).ok()).unwrap_or(u64::MAX);
        }
        let read = elements(first);
        let workspace = read.saturating_mul(16);
        let need = plain(elements(&out), size_of + 8);
        return Some(Need { workspace, cost: read.saturating_mul(LOGARITHM).max(need.cost), ..need });
    }
    if node.op_is::<DynTile>() {
        let repeats = inputs.get(1).and_then(|repeats| numbers(repeats, symbols));
        let out: Dims = match &repeats {
            Some(repeats) => {
                first.iter().zip(repeats).map(|(dim, repeat)| dim.saturating_mul(*repeat)).collect()
            }
            None => Dims::from(&[u64::MAX][..]),
        };
        let workspace = axis_by_axis(first, &out, size_of);
        return Some(Need { workspace, ..plain(elements(&out), size_of) });
    }
    if !at_most_its_inputs(node) {
        return None;
    }
    let most = most_selected(node, dims);
    let written = if node.op_is::<DynSlice>() {
        elements(first)
    } else {
        // Coordinates, as many for each as there are axes.
        most.saturating_mul(wide(first.len()).max(3))
    };
    let (workspace, cost) = special(node, first, dims, &[], size_of, elements(first));
    Some(Need { workspace, cost: cost.max(written), ..plain(written, size_of.max(8)) })
}

/// Elements of a range, as the engine counts them.
fn range_length(
    start: &EngineTensor,
    end: &EngineTensor,
    step: &EngineTensor,
    symbols: &SymbolValues,
) -> Option<u64> {
    if start.datum_type() == super::EngineDtype::TDim {
        let [start, end, step] = [start, end, step].map(|tensor| number(tensor, symbols));
        let (start, end, step) = (start?, end?, step?);
        let span = end.checked_sub(start)?.unsigned_abs();
        let step = step.unsigned_abs();
        return if step == 0 { None } else { u64::try_from(span.div_ceil(step)).ok() };
    }
    let [start, end, step] = [start, end, step].map(|tensor| tensor.cast_to_scalar::<f64>().ok());
    let length = ((end? - start?) / step?).ceil();
    // A number that is none comes out as 0, as it does in the engine.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Some(length as u64)
}

fn number(tensor: &EngineTensor, symbols: &SymbolValues) -> Option<i128> {
    let tensor = tensor.cast_to::<TDim>().ok()?;
    let dims = tensor.try_as_plain_ram().ok()?;
    dims.as_slice::<TDim>().ok()?.first()?.eval_to_i64(symbols).ok().map(i128::from)
}

fn numbers(tensor: &EngineTensor, symbols: &SymbolValues) -> Option<Vec<u64>> {
    let tensor = tensor.cast_to::<TDim>().ok()?;
    let dims = tensor.try_as_plain_ram().ok()?;
    let numbers = dims.as_slice::<TDim>().ok()?.iter();
    numbers.map(|dim| dim.eval_to_i64(symbols).ok().and_then(|number| u64::try_from(number).ok())).collect()
}
