//! Inputs that pass a signature are as many as it has, of its types, and equal where it says equal.
#![no_main]

use std::collections::HashMap;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use weir_gpu::{Dim, Dtype, Signature, Tensor, TensorSpec};

#[derive(Debug, Arbitrary)]
struct Given {
    inputs: Vec<(u8, u8, Vec<Axis>)>,
    tensors: Vec<(String, u8, Vec<u8>)>,
}

#[derive(Debug, Arbitrary)]
enum Axis {
    Fixed(u8),
    Symbol(u8),
    Computed,
}

fn dtype(index: u8) -> Dtype {
    [Dtype::Bool, Dtype::U8, Dtype::F32, Dtype::I64][usize::from(index % 4)]
}

fuzz_target!(|given: Given| {
    let dim = |axis: &Axis| match axis {
        Axis::Fixed(size) => Dim::Fixed(usize::from(*size)),
        Axis::Symbol(name) => Dim::Symbol(format!("s{}", name % 4)),
        Axis::Computed => Dim::Computed("s0+1".to_owned()),
    };
    let spec = |(name, ty, shape): &(u8, u8, Vec<Axis>)| TensorSpec {
        name: format!("i{}", name % 8),
        dtype: dtype(*ty),
        shape: shape.iter().map(dim).collect(),
    };
    let signature = Signature { inputs: given.inputs.iter().map(spec).collect(), outputs: vec![] };
    let tensor = |(name, ty, shape): (String, u8, Vec<u8>)| {
        let (dtype, shape): (_, Vec<usize>) = (dtype(ty), shape.into_iter().map(usize::from).collect());
        let bytes = shape.iter().try_fold(dtype.size(), |size, axis| size.checked_mul(*axis))?;
        let name = if name.len() < 2 { format!("i{}", name.len()) } else { name };
        (bytes <= 1 << 16).then(|| (name, Tensor::new(dtype, shape, vec![0; bytes].into()).unwrap()))
    };
    let Ok(ordered) = signature.order_inputs(given.tensors.into_iter().filter_map(tensor).collect()) else { return };
    assert_eq!(ordered.len(), signature.inputs.len());
    let mut symbols = HashMap::new();
    for (spec, tensor) in signature.inputs.iter().zip(&ordered) {
        assert_eq!((spec.dtype, spec.shape.len()), (tensor.dtype(), tensor.shape().len()));
        for (dim, size) in spec.shape.iter().zip(tensor.shape()) {
            match dim {
                Dim::Fixed(fixed) => assert_eq!(fixed, size),
                Dim::Symbol(symbol) => assert_eq!(symbols.entry(symbol).or_insert(size), &size),
                Dim::Computed(_) => {}
            }
        }
    }
});
