//! ONNX models, made on the spot: a transformer's encoder, and a model that wants much memory for a small input.

use prost::Message;
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::type_proto::{self, Value};
use tract_onnx::pb::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto,
};

/// How large an encoder is. Its input is `f32 [batch, tokens, width]`.
#[derive(Debug, Clone, Copy)]
pub struct Encoder {
    pub tokens: usize,
    /// A multiple of `heads`.
    pub width: usize,
    pub heads: usize,
    pub layers: usize,
}

struct Builder {
    graph: GraphProto,
    rng: fastrand::Rng,
}

/// Blocks of attention and two products with a GELU between them, each with what it got added and normalised; all of it
/// in operators of ONNX that are older than the fused ones.
pub fn encoder(size: Encoder) -> Vec<u8> {
    let Encoder { tokens, width, layers, .. } = size;
    let mut builder = Builder::new(&[tokens, width]);
    let mut last = "x".to_owned();
    for _ in 0..layers {
        let attended = builder.attention(&last, size);
        let sum = builder.node("Add", &[&last, &attended]);
        let normal = builder.norm(&sum, width);
        let fed = builder.feed_forward(&normal, width);
        let sum = builder.node("Add", &[&normal, &fed]);
        last = builder.norm(&sum, width);
    }
    builder.bytes(&last, &[tokens, width])
}

/// The largest of each row of `f32 [batch, 1]` times `width` weights: `width` times the input's bytes, in between.
pub fn widen(width: usize) -> Vec<u8> {
    let mut builder = Builder::new(&[1]);
    let weights = builder.weights(&[1, width], 1.0);
    let wide = builder.node("Mul", &["x", &weights]);
    let largest = builder.node_with("ReduceMax", &[&wide], vec![ints("axes", &[1]), int("keepdims", 1)]);
    builder.bytes(&largest, &[1])
}

impl Builder {
    fn new(row: &[usize]) -> Self {
        let input = vec![value("x", row)];
        let graph = GraphProto { name: "g".to_owned(), input, ..GraphProto::default() };
        Self { graph, rng: fastrand::Rng::with_seed(1) }
    }

    fn bytes(mut self, output: &str, row: &[usize]) -> Vec<u8> {
        self.graph.output.push(value(output, row));
        let opset = OperatorSetIdProto { domain: String::new(), version: 14 };
        let graph = Some(self.graph);
        ModelProto { ir_version: 8, opset_import: vec![opset], graph, ..ModelProto::default() }
            .encode_to_vec()
    }

    /// An operator. Returns its output's name, as everything here does.
    fn node(&mut self, operator: &str, inputs: &[&str]) -> String {
        self.node_with(operator, inputs, vec![])
    }

    fn node_with(&mut self, operator: &str, inputs: &[&str], attribute: Vec<AttributeProto>) -> String {
        let output = format!("t{}", self.graph.node.len());
        self.graph.node.push(NodeProto {
            op_type: operator.to_owned(),
            name: format!("{operator}-{output}"),
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            output: vec![output.clone()],
            attribute,
            ..NodeProto::default()
        });
        output
    }

    fn tensor(&mut self, dtype: DataType, dims: &[usize], raw_data: Vec<u8>) -> String {
        let name = format!("w{}", self.graph.initializer.len());
        self.graph.initializer.push(TensorProto {
            name: name.clone(),
            dims: dims.iter().map(|size| wide(*size)).collect(),
            data_type: dtype as i32,
            raw_data,
            ..TensorProto::default()
        });
        name
    }

    /// Weights about zero, none farther from it than half of `spread`.
    fn weights(&mut self, dims: &[usize], spread: f32) -> String {
        let count: usize = dims.iter().product();
        let values = (0..count).flat_map(|_| ((self.rng.f32() - 0.5) * spread).to_le_bytes());
        let data = values.collect();
        self.tensor(DataType::Float, dims, data)
    }

    fn constant(&mut self, value: f32) -> String {
        self.tensor(DataType::Float, &[], value.to_le_bytes().to_vec())
    }

    /// A shape; 0 is what the input has there.
    fn shape(&mut self, sizes: &[usize]) -> String {
        let data = sizes.iter().flat_map(|size| wide(*size).to_le_bytes()).collect();
        self.tensor(DataType::Int64, &[sizes.len()], data)
    }

    fn linear(&mut self, x: &str, from: usize, to: usize) -> String {
        let weights = self.weights(&[from, to], 2.0 / (from as f32).sqrt());
        let bias = self.weights(&[to], 0.1);
        let product = self.node("MatMul", &[x, &weights]);
        self.node("Add", &[&product, &bias])
    }

    fn transpose(&mut self, x: &str, order: &[i64]) -> String {
        self.node_with("Transpose", &[x], vec![ints("perm", order)])
    }

    /// A projection, as `[batch, heads, tokens, width of a head]`, or in another order of these.
    fn heads(&mut self, x: &str, size: Encoder, order: &[i64]) -> String {
        let Encoder { tokens, width, heads, .. } = size;
        let projected = self.linear(x, width, width);
        let shape = self.shape(&[0, tokens, heads, width / heads.max(1)]);
        let apart = self.node("Reshape", &[&projected, &shape]);
        self.transpose(&apart, order)
    }

    fn attention(&mut self, x: &str, size: Encoder) -> String {
        let Encoder { tokens, width, heads, .. } = size;
        let queries = self.heads(x, size, &[0, 2, 1, 3]);
        let keys = self.heads(x, size, &[0, 2, 3, 1]);
        let values = self.heads(x, size, &[0, 2, 1, 3]);
        let scores = self.node("MatMul", &[&queries, &keys]);
        let scale = self.constant(1.0 / ((width / heads.max(1)) as f32).sqrt());
        let scores = self.node("Mul", &[&scores, &scale]);
        let parts = self.node_with("Softmax", &[&scores], vec![int("axis", 3)]);
        let seen = self.node("MatMul", &[&parts, &values]);
        let seen = self.transpose(&seen, &[0, 2, 1, 3]);
        let shape = self.shape(&[0, tokens, width]);
        let together = self.node("Reshape", &[&seen, &shape]);
        self.linear(&together, width, width)
    }

    fn feed_forward(&mut self, x: &str, width: usize) -> String {
        let hidden = self.linear(x, width, 4 * width);
        // GELU: half of h (1 + erf(h / √2)).
        let root = self.constant(std::f32::consts::FRAC_1_SQRT_2);
        let scaled = self.node("Mul", &[&hidden, &root]);
        let erf = self.node("Erf", &[&scaled]);
        let one = self.constant(1.0);
        let gate = self.node("Add", &[&erf, &one]);
        let gated = self.node("Mul", &[&hidden, &gate]);
        let half = self.constant(0.5);
        let active = self.node("Mul", &[&gated, &half]);
        self.linear(&active, 4 * width, width)
    }

    /// Of the last axis.
    fn norm(&mut self, x: &str, width: usize) -> String {
        let mean = |builder: &mut Self, x: &str| {
            builder.node_with("ReduceMean", &[x], vec![ints("axes", &[2]), int("keepdims", 1)])
        };
        let middle = mean(self, x);
        let centred = self.node("Sub", &[x, &middle]);
        let squares = self.node("Mul", &[&centred, &centred]);
        let variance = mean(self, &squares);
        let little = self.constant(1e-5);
        let variance = self.node("Add", &[&variance, &little]);
        let deviation = self.node("Sqrt", &[&variance]);
        let normal = self.node("Div", &[&centred, &deviation]);
        let (gain, bias) = (self.weights(&[width], 2.0), self.weights(&[width], 0.1));
        let scaled = self.node("Mul", &[&normal, &gain]);
        self.node("Add", &[&scaled, &bias])
    }
}

/// `f32 [batch, …]`.
fn value(name: &str, row: &[usize]) -> ValueInfoProto {
    let axis = |value| Dimension { value: Some(value), ..Dimension::default() };
    let mut dim = vec![axis(dimension::Value::DimParam("batch".to_owned()))];
    dim.extend(row.iter().map(|size| axis(dimension::Value::DimValue(wide(*size)))));
    let shape = Some(TensorShapeProto { dim });
    let tensor = type_proto::Tensor { elem_type: DataType::Float as i32, shape };
    let ty = TypeProto { value: Some(Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(ty), ..ValueInfoProto::default() }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type: AttributeType::Int as i32, i, ..Default::default() }
}

fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    let (name, ints) = (name.to_owned(), ints.to_vec());
    AttributeProto { name, r#type: AttributeType::Ints as i32, ints, ..Default::default() }
}

fn wide(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
