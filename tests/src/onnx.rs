//! Small ONNX models, made on the spot.

use prost::Message;
use tract_onnx::pb::tensor_proto::{DataLocation, DataType};
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::type_proto::{Tensor, Value};
use tract_onnx::pb::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto,
};

/// An axis of a declared shape.
pub enum Axis {
    Fixed(i64),
    Named(&'static str),
}

fn value(name: &str, dtype: DataType, shape: &[Axis]) -> ValueInfoProto {
    let dim = shape.iter().map(|axis| Dimension {
        value: Some(match axis {
            Axis::Fixed(size) => dimension::Value::DimValue(*size),
            Axis::Named(name) => dimension::Value::DimParam((*name).to_owned()),
        }),
        ..Dimension::default()
    });
    let shape = TensorShapeProto { dim: dim.collect() };
    let tensor = Tensor { elem_type: dtype as i32, shape: Some(shape) };
    let ty = TypeProto { value: Some(Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(ty), ..ValueInfoProto::default() }
}

fn node(operator: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: operator.to_owned(),
        name: format!("{operator}-{output}"),
        input: inputs.iter().map(|input| (*input).to_owned()).collect(),
        output: vec![output.to_owned()],
        ..NodeProto::default()
    }
}

fn model(graph: GraphProto) -> Vec<u8> {
    let opset = OperatorSetIdProto { domain: String::new(), version: 14 };
    ModelProto { ir_version: 8, opset_import: vec![opset], graph: Some(graph), ..ModelProto::default() }
        .encode_to_vec()
}

/// `y = x <operator> x`, element by element.
pub fn with_itself(operator: &str, dtype: DataType, shape: &[Axis]) -> Vec<u8> {
    model(GraphProto {
        name: "g".to_owned(),
        node: vec![node(operator, &["x", "x"], "y")],
        input: vec![value("x", dtype, shape)],
        output: vec![value("y", dtype, shape)],
        ..GraphProto::default()
    })
}

/// `y = x + x`.
pub fn double(dtype: DataType, shape: &[Axis]) -> Vec<u8> {
    with_itself("Add", dtype, shape)
}

/// `sum = a + b` on two inputs, `f32 [batch, 2]` each.
pub fn sum() -> Vec<u8> {
    let shape = || [Axis::Named("batch"), Axis::Fixed(2)];
    let ty = DataType::Float;
    model(GraphProto {
        name: "g".to_owned(),
        node: vec![node("Add", &["a", "b"], "sum")],
        input: vec![value("a", ty, &shape()), value("b", ty, &shape())],
        output: vec![value("sum", ty, &shape())],
        ..GraphProto::default()
    })
}

/// `y = x · w · w · …`, `steps` times, on `f32 [size, size]`: as slow as one likes, in many operators.
pub fn slow(size: i64, steps: usize) -> Vec<u8> {
    let names: Vec<String> = (0..=steps).map(|step| format!("x{step}")).collect();
    let nodes = names.windows(2).map(|pair| node("MatMul", &[&pair[0], "w"], &pair[1]));
    let elements = usize::try_from(size * size).unwrap();
    let weights = TensorProto {
        name: "w".to_owned(),
        dims: vec![size, size],
        data_type: DataType::Float as i32,
        raw_data: vec![0; elements * 4],
        ..TensorProto::default()
    };
    let shape = [Axis::Fixed(size), Axis::Fixed(size)];
    model(GraphProto {
        name: "g".to_owned(),
        node: nodes.collect(),
        input: vec![value(&names[0], DataType::Float, &shape)],
        output: vec![value(&names[steps], DataType::Float, &shape)],
        initializer: vec![weights],
        ..GraphProto::default()
    })
}

/// `y = ` a constant of ones of this shape, which the engine makes while it prepares the model, `+ x`.
pub fn filled(shape: &[i64]) -> Vec<u8> {
    let dims = TensorProto {
        name: "dims".to_owned(),
        dims: vec![shape.len() as i64],
        data_type: DataType::Int64 as i32,
        int64_data: shape.to_vec(),
        ..TensorProto::default()
    };
    let axes = || shape.iter().map(|size| Axis::Fixed(*size)).collect::<Vec<_>>();
    model(GraphProto {
        name: "g".to_owned(),
        node: vec![node("ConstantOfShape", &["dims"], "c"), node("Add", &["c", "x"], "y")],
        input: vec![value("x", DataType::Float, &[Axis::Fixed(1)])],
        output: vec![value("y", DataType::Float, &axes())],
        initializer: vec![dims],
        ..GraphProto::default()
    })
}

/// A model whose weights `w` are in a file beside it.
pub fn external() -> Vec<u8> {
    let entry =
        |key: &str, value: &str| StringStringEntryProto { key: key.to_owned(), value: value.to_owned() };
    let weights = TensorProto {
        name: "w".to_owned(),
        dims: vec![4],
        data_type: DataType::Float as i32,
        data_location: Some(DataLocation::External as i32),
        external_data: vec![entry("location", "../../../etc/passwd")],
        ..TensorProto::default()
    };
    model(GraphProto {
        name: "g".to_owned(),
        node: vec![node("Add", &["x", "w"], "y")],
        input: vec![value("x", DataType::Float, &[Axis::Fixed(4)])],
        output: vec![value("y", DataType::Float, &[Axis::Fixed(4)])],
        initializer: vec![weights],
        ..GraphProto::default()
    })
}

/// A perceptron on `f32 [batch, width]`: `layers` times a product with `width` by `width` weights of its own, and a ReLU.
pub fn perceptron(width: i64, layers: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let names: Vec<String> = (0..=layers).map(|layer| format!("x{layer}")).collect();
    let (mut nodes, mut weights) = (vec![], vec![]);
    for (layer, pair) in names.windows(2).enumerate() {
        let (weight, product) = (format!("w{layer}"), format!("p{layer}"));
        nodes.push(node("MatMul", &[&pair[0], &weight], &product));
        nodes.push(node("Relu", &[&product], &pair[1]));
        let values = std::iter::repeat_with(|| (rng.f32() - 0.5) * 0.1);
        let count = usize::try_from(width * width).unwrap();
        weights.push(TensorProto {
            name: weight,
            dims: vec![width, width],
            data_type: DataType::Float as i32,
            raw_data: values.take(count).flat_map(f32::to_le_bytes).collect(),
            ..TensorProto::default()
        });
    }
    let shape = || [Axis::Named("batch"), Axis::Fixed(width)];
    model(GraphProto {
        name: "g".to_owned(),
        node: nodes,
        input: vec![value("x0", DataType::Float, &shape())],
        output: vec![value(&names[layers], DataType::Float, &shape())],
        initializer: weights,
        ..GraphProto::default()
    })
}
