//! Which operators of a model may run on a device that tenants share.
//!
//! The engine's kernels take it that what they are given fits together, and all tenants' tensors are in one address space:
//! an operator that reads or writes beside its tensors reads or writes somebody's. So an operator runs there only if it
//! is known to stay within its tensors, given what is checked here of its shapes, types and parameters. All others run on
//! the CPU, where each is checked; the few that the engine takes to the device whatever it is told make the model one that
//! does not run there.
//!
//! What is checked here are facts. That the tensors of a run are as their facts say is checked as it runs ([`fits`]).

use tract_onnx::prelude::{DatumType, TValue, TypedModel};
use tract_onnx::tract_core::internal::{AxisOp, TypedFact, TypedOp};
use tract_onnx::tract_core::ops::array::{MultiBroadcastTo, Pad, PadMode, Slice, TypedConcat};
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::cast::Cast;
use tract_onnx::tract_core::ops::cnn::{Conv, KernelFormat, PaddingSpec};
use tract_onnx::tract_core::ops::einsum::prefix_matmul::PrefixMatMul;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_core::ops::logic::Iff;
use tract_onnx::tract_core::ops::nn::{Reduce, RmsNorm, ScaledRmsNorm, Softmax};
use tract_onnx::tract_core::ops::source::TypedSource;

use crate::Error;

pub(super) type Node = tract_onnx::prelude::Node<TypedFact, Box<dyn TypedOp>>;

/// The most elements of a tensor, along an axis and in all. Kernels count in 32 bits and add strides to that.
const MOST: usize = 1 << 30;

/// The most rows and columns of a product.
const MOST_SIDE: usize = 1 << 24;

/// The most products of one operator: they are a dimension of a launch.
const MOST_PRODUCTS: usize = u16::MAX as usize;

/// The most that a window, its steps and its padding may be: two of them are multiplied in 32 bits.
const MOST_WINDOW: usize = 1 << 15;

/// Attention in one operator, as the engine calls it.
const ATTENTION: &str = "SDPA";

/// Where an operator is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Device,
    Cpu,
}

/// What the engine calls its operators on the device, less a prefix, that stay within tensors that are as their facts say.
/// Whatever else comes out of it is refused.
const KNOWN: [&str; 66] = [
    // Cuda, an element at a time.
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitNot",
    "Cast",
    "Ceil",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "Floor",
    "GeluApproximate",
    "HardSwish",
    "LeakyRelu",
    "Ln",
    "Neg",
    "Not",
    "Recip",
    "Round",
    "RoundHalfToEven",
    "Rsqrt",
    "Sigmoid",
    "Sign",
    "Silu",
    "Sin",
    "Sinh",
    "Sqrt",
    "Square",
    "Tan",
    "Tanh",
    // Cuda, two elements or three at a time.
    "Add",
    "And",
    "BitAnd",
    "BitOr",
    "BitXor",
    "Div",
    "Eq",
    "GT",
    "GTE",
    "Iff",
    "LT",
    "LTE",
    "Max",
    "Min",
    "Mul",
    "NE",
    "Or",
    "Pow",
    "Sub",
    // Cuda, along an axis.
    "Conv",
    "GgmlGemm",
    "Reduce",
    "RmsNorm",
    "Softmax",
    // Gpu, on shapes.
    "AddAxis",
    "Concat",
    "MoveAxis",
    "MultiBroadcastTo",
    "Pad",
    "Reshape",
    "RmAxis",
    "Slice",
];

/// Whether an operator on the device is one that is known.
pub(super) fn is_known(operator: &str) -> bool {
    let name = operator.strip_prefix("Cuda").or_else(|| operator.strip_prefix("Gpu")).unwrap_or(operator);
    let name = name.split('<').next().unwrap_or(name);
    KNOWN.contains(&name)
}

/// Where each node of a model is to run, in the order of the nodes. The model is as it is right before its operators are
/// translated one by one.
///
/// # Errors
/// [`Error::NotOnGpu`] for what can be kept from the device only with the whole model.
pub(super) fn places(model: &TypedModel) -> Result<Vec<Place>, Error> {
    for output in model.nodes().iter().flat_map(|node| &node.outputs) {
        let Some(dims) = output.fact.shape.as_concrete() else {
            return Err(Error::NotOnGpu("the sizes of its tensors depend on data".to_owned()));
        };
        if !is_countable(dims) {
            return Err(Error::NotOnGpu(format!(
                "it has a tensor of shape {dims:?}, which kernels cannot count"
            )));
        }
    }
    model.nodes().iter().map(|node| place(model, node)).collect()
}

fn is_countable(dims: &[usize]) -> bool {
    let each = dims.iter().all(|dim| (1..=MOST).contains(dim));
    each && dims.iter().fold(1_usize, |product, dim| product.saturating_mul(*dim)) <= MOST
}

/// What is known of a tensor.
struct Tensor<'a> {
    dtype: DatumType,
    dims: &'a [usize],
    plain: bool,
}

fn place<'a>(model: &'a TypedModel, node: &Node) -> Result<Place, Error> {
    let refused = |what: &str| Err(Error::NotOnGpu(format!("its operator `{}` {what}", node.name)));
    let facts = model.node_input_facts(node.id).map_err(|error| Error::Engine(error.to_string()))?;
    let input = |fact: &&'a TypedFact| {
        let dims = fact.shape.as_concrete()?;
        Some(Tensor { dtype: fact.datum_type, dims, plain: fact.is_plain() })
    };
    let inputs: Option<Vec<Tensor<'_>>> = facts.iter().map(input).collect();
    let Some(inputs) = inputs else { return refused("has inputs of unknown sizes") };
    let plain =
        inputs.iter().all(|input| input.plain) && node.outputs.iter().all(|output| output.fact.is_plain());

    // What the engine takes to the device whatever it is told.
    if node.op.name() == ATTENTION {
        return refused("is attention in one piece, whose kernel does not check its mask");
    }
    if let Some(product) = node.op_as::<PrefixMatMul>() {
        // On the CPU, this form of it takes no whole numbers.
        return match plain && product_fits(product, &inputs) {
            true => Ok(Place::Device),
            false => refused("multiplies what does not fit, is packed, or is no floating point"),
        };
    }
    if let Some(conv) = node.op_as::<Conv>() {
        return match inputs.first().is_some_and(|input| is_half_or_single(input.dtype)) {
            false => Ok(Place::Cpu),
            true if plain && conv_fits(conv, &inputs, is_zero(facts.get(2))) => Ok(Place::Device),
            true => refused("convolves what does not fit"),
        };
    }
    if node.op_is::<Const>() || node.op_is::<TypedSource>() {
        return Ok(Place::Device);
    }
    Ok(if plain && stays_within(node, &inputs) { Place::Device } else { Place::Cpu })
}

/// Whether an operator that may run on either is known to stay within its tensors.
fn stays_within(node: &Node, inputs: &[Tensor<'_>]) -> bool {
    let output = node.outputs.first().and_then(|output| output.fact.shape.as_concrete()).unwrap_or_default();
    if let Some(binary) = node.op_as::<TypedBinOp>() {
        // The kernel goes by the first one's type.
        let Some(first) = inputs.first() else { return false };
        return of_one_type(inputs) && has_kernel(binary.0.name(), first.dtype) && fits_a_grid(output);
    }
    if node.op_is::<Iff>() {
        return fits_a_grid(output);
    }
    if let Some(softmax) = node.op_as::<Softmax>() {
        return softmax.axes.len() == 1 && softmax.quant_output_dt.is_none();
    }
    if let Some(concat) = node.op_as::<TypedConcat>() {
        return of_one_type(inputs) && concat_fits(concat.axis, inputs, output);
    }
    if let Some(pad) = node.op_as::<Pad>() {
        let rank = inputs.first().map_or(0, |input| input.dims.len());
        let one = matches!(&pad.mode, PadMode::Constant(value) if value.len() == 1);
        let small = pad.pads.iter().all(|(before, after)| *before <= MOST && *after <= MOST);
        return one && small && pad.pads.len() == rank;
    }
    if node.op_is::<MultiBroadcastTo>() {
        let Some(input) = inputs.first() else { return false };
        return is_broadcast(input.dims, output);
    }
    node.op_is::<ElementWiseOp>()
        || node.op_is::<Cast>()
        || node.op_is::<Reduce>()
        || node.op_is::<RmsNorm>()
        || node.op_is::<ScaledRmsNorm>()
        || node.op_is::<AxisOp>()
        || node.op_is::<Slice>()
}

fn is_half_or_single(dtype: DatumType) -> bool {
    matches!(dtype, DatumType::F16 | DatumType::F32)
}

/// Whether there is a kernel for two of this type that gives what the CPU would: some go through `f32`.
fn has_kernel(operator: &str, dtype: DatumType) -> bool {
    match operator {
        "Min" | "Max" | "Pow" => is_half_or_single(dtype),
        "And" | "Or" => dtype == DatumType::Bool,
        "BitAnd" | "BitOr" | "BitXor" => dtype.is_integer(),
        _ => dtype.is_number(),
    }
}

/// Whether kernels that put axes on a launch's can put these there.
fn fits_a_grid(dims: &[usize]) -> bool {
    const MOST_AXES: usize = 5;
    let (outer, _) = dims.split_at(dims.len().saturating_sub(2));
    dims.len() <= MOST_AXES
        && outer.iter().fold(1_usize, |all, dim| all.saturating_mul(*dim)) <= MOST_PRODUCTS
}

/// Whether it is known to be nothing but zeros.
fn is_zero(fact: Option<&&TypedFact>) -> bool {
    let constant = fact.and_then(|fact| fact.konst.as_ref());
    constant.is_some_and(|constant| constant.is_all_zero().unwrap_or(false))
}

fn of_one_type(inputs: &[Tensor<'_>]) -> bool {
    inputs.windows(2).all(|pair| matches!(pair, [one, other] if one.dtype == other.dtype))
}

/// Whether each axis, from the right, is that of `to` or 1.
fn is_broadcast(dims: &[usize], to: &[usize]) -> bool {
    dims.len() <= to.len() && dims.iter().rev().zip(to.iter().rev()).all(|(dim, to)| *dim == 1 || dim == to)
}

fn concat_fits(axis: usize, inputs: &[Tensor<'_>], output: &[usize]) -> bool {
    let others = |dims: &[usize]| -> Option<Vec<usize>> {
        let mut dims = dims.to_vec();
        (axis < dims.len()).then(|| dims.remove(axis))?;
        Some(dims)
    };
    let Some(wanted) = others(output) else { return false };
    let length = inputs.iter().try_fold(0_usize, |sum, input| sum.checked_add(*input.dims.get(axis)?));
    inputs.iter().all(|input| others(input.dims).as_ref() == Some(&wanted))
        && length == output.get(axis).copied()
}

/// [.., rows, width] against [.., width, columns], in either of which the last two may be the other way around.
fn product_fits(product: &PrefixMatMul, inputs: &[Tensor<'_>]) -> bool {
    let [a, b] = inputs else { return false };
    let [a_outer @ .., a_rows, a_columns] = a.dims else { return false };
    let [b_outer @ .., b_rows, b_columns] = b.dims else { return false };
    let a_width = if product.transpose_a { a_rows } else { a_columns };
    let b_width = if product.transpose_b { b_columns } else { b_rows };
    let products = |dims: &[usize]| dims.iter().fold(1_usize, |all, dim| all.saturating_mul(*dim));
    a_outer.len() == b_outer.len()
        && (a_outer == b_outer || products(a_outer) == 1 || products(b_outer) == 1)
        && products(a_outer).max(products(b_outer)) <= MOST_PRODUCTS
        && a_width == b_width
        && [a_rows, a_columns, b_rows, b_columns].iter().all(|dim| **dim <= MOST_SIDE)
        && a.dtype == b.dtype
        && product.quantize_output.is_none()
        && is_half_or_single(a.dtype)
}

/// Input, kernel [outputs, inputs / group, ..], bias.
fn conv_fits(conv: &Conv, inputs: &[Tensor<'_>], has_no_bias: bool) -> bool {
    let [input, kernel, bias] = inputs else { return false };
    let spec = &conv.pool_spec;
    let (group, outputs, channels) = (conv.group, spec.output_channels, spec.input_channels);
    let rank = spec.kernel_shape.len();
    let small = |numbers: &[usize], least: usize| {
        numbers.len() == rank && numbers.iter().all(|number| (least..=MOST_WINDOW).contains(number))
    };
    let padding = match &spec.padding {
        PaddingSpec::Explicit(before, after) | PaddingSpec::ExplicitOnnxPool(before, after, _) => {
            small(before, 0) && small(after, 0)
        }
        PaddingSpec::Valid | PaddingSpec::SameUpper | PaddingSpec::SameLower => true,
    };
    let dims = spec.data_format.shape(input.dims).ok();
    let kernel_dims: Option<Vec<usize>> = channels
        .checked_div(group)
        .map(|inputs| [outputs, inputs].into_iter().chain(spec.kernel_shape.iter().copied()).collect());
    conv.q_params.is_none()
        && conv.kernel_fmt == KernelFormat::OIHW
        && of_one_type(inputs)
        && (1..=4).contains(&rank)
        && group > 0
        && outputs.checked_rem(group) == Some(0)
        && channels.checked_rem(group) == Some(0)
        && dims.is_some_and(|dims| *dims.c() == channels && dims.hw_rank() == rank)
        && kernel_dims.as_deref() == Some(kernel.dims)
        && (bias.dims == [outputs] || bias.dims.is_empty() && has_no_bias)
        && small(&spec.kernel_shape, 1)
        && small(&spec.strides(), 1)
        && small(&spec.dilations(), 1)
        && padding
}

/// Whether a tensor of a run is as its fact says.
pub(super) fn fits(value: &TValue, fact: &TypedFact) -> bool {
    value.datum_type() == fact.datum_type
        && fact.shape.as_concrete().is_some_and(|dims| dims == value.shape())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tract_onnx::prelude::{Datum, DatumExt as _, IntoArcTensor, tensor0, tvec};
    use tract_onnx::tract_core::internal::{InletId, OutletId, ShapeFact};
    use tract_onnx::tract_core::ops::array::Gather;
    use tract_onnx::tract_core::ops::math;
    use tract_onnx::tract_core::ops::nn::{DataFormat, SoftmaxKind};

    struct World {
        model: TypedModel,
        inputs: Vec<OutletId>,
    }

    fn of<T: Datum>(shapes: &[&[usize]]) -> World {
        let mut world = World { model: TypedModel::default(), inputs: vec![] };
        for shape in shapes {
            world.add::<T>(shape);
        }
        world
    }

    impl World {
        fn add<T: Datum>(&mut self, shape: &[usize]) {
            let name = format!("x{}", self.inputs.len());
            self.inputs.push(self.model.add_source(name, T::fact(shape)).unwrap());
        }

        /// Where an operator on these inputs is to run, though it would say itself that they do not fit.
        fn place(mut self, op: impl Into<Box<dyn TypedOp>>, output: TypedFact) -> Result<Place, String> {
            let id = self.model.add_node("op", op, tvec![output]).unwrap();
            for (slot, input) in self.inputs.iter().enumerate() {
                self.model.add_edge(*input, InletId::new(id, slot)).unwrap();
            }
            places(&self.model).map(|places| places[id]).map_err(|error| error.to_string())
        }
    }

    fn f32s(shape: &[usize]) -> TypedFact {
        f32::fact(shape)
    }

    #[test]
    fn what_goes_by_its_first_inputs_type_is_of_one_type() {
        assert_eq!(of::<f32>(&[&[4], &[4]]).place(math::add(), f32s(&[4])), Ok(Place::Device));
        let mut mixed = of::<f32>(&[&[4]]);
        mixed.add::<u8>(&[4]);
        assert_eq!(mixed.place(math::add(), f32s(&[4])), Ok(Place::Cpu));
    }

    #[test]
    fn what_a_kernel_would_count_otherwise_stays_on_the_cpu() {
        let whole = of::<i64>(&[&[4], &[4]]).place(math::min(), i64::fact([4]));
        assert_eq!(whole, Ok(Place::Cpu), "its kernel goes through f32");
        assert_eq!(of::<i64>(&[&[4], &[4]]).place(math::add(), i64::fact([4])), Ok(Place::Device));
        assert_eq!(of::<f32>(&[&[4], &[4]]).place(math::min(), f32s(&[4])), Ok(Place::Device));
        let deep = [1_usize; 6];
        assert_eq!(of::<f32>(&[&deep, &deep]).place(math::add(), f32s(&deep)), Ok(Place::Cpu));
        let wide = [MOST_PRODUCTS + 1, 1, 1];
        assert_eq!(of::<f32>(&[&wide, &wide]).place(math::add(), f32s(&wide)), Ok(Place::Cpu));
        let softmax = |axes: &[usize]| {
            let softmax = Softmax { axes: axes.into(), quant_output_dt: None, kind: SoftmaxKind::default() };
            of::<f32>(&[&[2, 3, 4]]).place(softmax, f32s(&[2, 3, 4]))
        };
        assert_eq!((softmax(&[2]), softmax(&[1, 2])), (Ok(Place::Device), Ok(Place::Cpu)));
    }

    #[test]
    fn indices_out_of_data_stay_on_the_cpu() {
        let mut gather = of::<f32>(&[&[10, 2]]);
        gather.add::<i64>(&[3]);
        assert_eq!(gather.place(Gather::new(0), f32s(&[3, 2])), Ok(Place::Cpu));
    }

    #[test]
    fn padding_that_takes_away_stays_on_the_cpu() {
        let pad = |after: usize| {
            let mode = PadMode::Constant(tensor0(0f32).into_arc_tensor());
            of::<f32>(&[&[4]]).place(Pad { pads: vec![(0, after)], mode }, f32s(&[2]))
        };
        assert_eq!(pad(3), Ok(Place::Device));
        // As the engine has -2.
        assert_eq!(pad(usize::MAX - 1), Ok(Place::Cpu));
        let edge = Pad { pads: vec![(0, 1)], mode: PadMode::Edge };
        assert_eq!(of::<f32>(&[&[4]]).place(edge, f32s(&[5])), Ok(Place::Cpu));
    }

    #[test]
    fn what_is_joined_has_one_type_and_equal_sides() {
        let concat = |one: &[usize], other: &[usize], out: &[usize]| {
            of::<f32>(&[one, other]).place(TypedConcat { axis: 0 }, f32s(out))
        };
        assert_eq!(concat(&[2, 3], &[4, 3], &[6, 3]), Ok(Place::Device));
        assert_eq!(concat(&[2, 3], &[4, 4], &[6, 3]), Ok(Place::Cpu));
        assert_eq!(concat(&[2, 3], &[4, 3], &[5, 3]), Ok(Place::Cpu));
        let mut mixed = of::<u8>(&[&[2]]);
        mixed.add::<f32>(&[2]);
        assert_eq!(mixed.place(TypedConcat { axis: 0 }, u8::fact([4])), Ok(Place::Cpu));
    }

    #[test]
    fn only_axes_of_one_are_spread() {
        let spread = |from: &[usize], to: &[usize]| {
            of::<f32>(&[from]).place(MultiBroadcastTo { shape: ShapeFact::from_dims(to) }, f32s(to))
        };
        assert_eq!(spread(&[1, 3], &[2, 4, 3]), Ok(Place::Device));
        assert_eq!(spread(&[2, 3], &[4, 3]), Ok(Place::Cpu));
        assert_eq!(spread(&[1, 1, 3], &[1, 3]), Ok(Place::Cpu));
    }

    #[test]
    fn a_product_that_does_not_fit_keeps_its_model_away() {
        let product = PrefixMatMul {
            transpose_a: false,
            transpose_b: true,
            transpose_c: false,
            quantize_output: None,
            operating_dt: None,
        };
        let placed = |a: &[usize], b: &[usize]| of::<f32>(&[a, b]).place(product, f32s(&[1, 2, 5]));
        assert_eq!(placed(&[1, 2, 7], &[1, 5, 7]), Ok(Place::Device));
        assert_eq!(placed(&[6, 2, 7], &[1, 5, 7]), Ok(Place::Device));
        for (a, b) in [
            (&[1, 2, 8][..], &[1, 5, 7][..]),
            (&[2, 2, 7], &[3, 5, 7]),
            (&[2, 7], &[1, 5, 7]),
            (&[1 << 16, 1, 7], &[1, 5, 7]),
        ] {
            let refused = placed(a, b).unwrap_err();
            assert!(refused.contains("multiplies what does not fit"), "{refused}");
        }
        let whole = of::<i32>(&[&[1, 2, 7], &[1, 5, 7]]).place(product, i32::fact([1, 2, 5]));
        assert!(whole.is_err(), "on the CPU this form of it takes no whole numbers");
        let mut mixed = of::<f32>(&[&[1, 2, 7]]);
        mixed.add::<i8>(&[1, 5, 7]);
        assert!(mixed.place(product, f32s(&[1, 2, 5])).is_err());
    }

    fn conv(group: usize, pads: &[usize], strides: usize) -> Conv {
        let pool_spec = tract_onnx::tract_core::ops::cnn::PoolSpec {
            data_format: DataFormat::NCHW,
            kernel_shape: tvec![3, 3],
            padding: PaddingSpec::Explicit(pads.into(), pads.into()),
            dilations: None,
            strides: Some(tvec![strides, 1]),
            input_channels: 4,
            output_channels: 6,
        };
        Conv { pool_spec, kernel_fmt: KernelFormat::OIHW, group, q_params: None }
    }

    #[test]
    fn a_convolution_that_does_not_fit_keeps_its_model_away() {
        let placed = |conv: Conv, kernel: &[usize], bias: &[usize]| {
            of::<f32>(&[&[1, 4, 8, 8], kernel, bias]).place(conv, f32s(&[1, 6, 6, 6]))
        };
        assert_eq!(placed(conv(1, &[0, 0], 1), &[6, 4, 3, 3], &[6]), Ok(Place::Device));
        assert_eq!(placed(conv(2, &[1, 1], 1), &[6, 2, 3, 3], &[6]), Ok(Place::Device));
        for (conv, kernel, bias) in [
            (conv(4, &[0, 0], 1), &[6, 1, 3, 3][..], &[6][..]),
            (conv(0, &[0, 0], 1), &[6, 4, 3, 3], &[6]),
            (conv(1, &[0, 0], 1), &[6, 3, 3, 3], &[6]),
            (conv(1, &[0, 0], 1), &[6, 4, 3, 3], &[5]),
            // One number that is not known to be 0.
            (conv(1, &[0, 0], 1), &[6, 4, 3, 3], &[]),
            (conv(1, &[MOST_WINDOW + 1, 0], 1), &[6, 4, 3, 3], &[6]),
            (conv(1, &[usize::MAX, 0], 1), &[6, 4, 3, 3], &[6]),
            (conv(1, &[0], 1), &[6, 4, 3, 3], &[6]),
            (conv(1, &[0, 0], 0), &[6, 4, 3, 3], &[6]),
            (Conv { q_params: Some(DatumType::I32), ..conv(1, &[0, 0], 1) }, &[6, 4, 3, 3], &[6]),
        ] {
            let refused = placed(conv.clone(), kernel, bias).unwrap_err();
            assert!(refused.contains("convolves what does not fit"), "{refused}: {conv:?}");
        }
        let mut mixed = of::<f32>(&[&[1, 4, 8, 8]]);
        mixed.add::<u8>(&[6, 4, 3, 3]);
        mixed.add::<f32>(&[6]);
        assert!(mixed.place(conv(1, &[0, 0], 1), f32s(&[1, 6, 6, 6])).is_err());
    }

    #[test]
    fn tensors_that_kernels_cannot_count_keep_their_model_away() {
        for shape in [&[MOST + 1][..], &[1 << 16, 1 << 15], &[2, 0], &[1 << 40, 1 << 40]] {
            let refused = of::<u8>(&[shape]).place(math::tanh(), f32s(&[1])).unwrap_err();
            assert!(refused.contains("cannot count"), "{refused}");
        }
        assert_eq!(of::<f32>(&[&[MOST]]).place(math::tanh(), f32s(&[MOST])), Ok(Place::Device));
        let mut model = TypedModel::default();
        let rows = model.symbols.sym("n");
        model.add_source("x", f32::fact([rows])).unwrap();
        assert!(places(&model).unwrap_err().to_string().contains("depend on data"));
    }

    #[test]
    fn the_engines_names_are_the_ones_that_are_known() {
        use tract_cuda::kernels::{binary::cuda_bin_op, element_wise::cuda_element_wise_op};
        use tract_onnx::tract_core::ops::logic;
        let name = |op: &dyn TypedOp| op.name().into_owned();
        for op in [math::tanh(), math::exp(), math::rsqrt(), math::erf(), math::neg()] {
            let there = name(&cuda_element_wise_op(op.0.clone()));
            assert!(is_known(&there), "{there}");
        }
        for op in [math::add(), math::sub(), math::mul(), math::div(), math::pow(), math::min(), math::max()]
        {
            let there = name(&cuda_bin_op(op.0.clone()));
            assert!(is_known(&there), "{there}");
        }
        for op in [logic::comp_eq(), logic::comp_ne(), logic::comp_lt(), logic::comp_gte(), logic::and().0] {
            let there = name(&cuda_bin_op(op));
            assert!(is_known(&there), "{there}");
        }
        assert!(is_known(&name(&tract_cuda::ops::CudaGgmlGemm)));
        assert!(is_known(&name(&tract_gpu::ops::concat::GpuConcat::new(0))));
        assert!(is_known("CudaReduce<Sum>") && is_known("GpuReshape") && is_known("CudaConv"));
        for other in ["CudaGather", "CudaStft", "CudaFlashAttention", "CudaGgmlQuantQ81Op", "CudaApplyRope"] {
            assert!(!is_known(other), "{other}");
        }
    }
}
