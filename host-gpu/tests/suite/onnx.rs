//! ONNX models, put together piece by piece.

use prost::Message;
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::type_proto::{self, Value};
use tract_onnx::pb::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto,
};

pub use tract_onnx::pb::tensor_proto::DataType;

#[derive(Default)]
pub struct Graph(GraphProto);

impl Graph {
    /// Axes are numbers or names.
    pub fn input(mut self, name: &str, dtype: DataType, axes: &[&str]) -> Self {
        self.0.input.push(value(name, dtype, axes));
        self
    }

    pub fn output(mut self, name: &str, dtype: DataType, axes: &[&str]) -> Self {
        self.0.output.push(value(name, dtype, axes));
        self
    }

    pub fn node(self, operator: &str, inputs: &[&str], output: &str) -> Self {
        self.node_with(operator, inputs, output, vec![])
    }

    /// `outputs` are separated by spaces.
    pub fn node_with(
        mut self,
        operator: &str,
        inputs: &[&str],
        outputs: &str,
        attribute: Vec<AttributeProto>,
    ) -> Self {
        self.0.node.push(NodeProto {
            op_type: operator.to_owned(),
            name: format!("{operator}-{outputs}"),
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            output: outputs.split(' ').map(str::to_owned).collect(),
            attribute,
            ..NodeProto::default()
        });
        self
    }

    pub fn tensor(mut self, tensor: TensorProto) -> Self {
        self.0.initializer.push(tensor);
        self
    }

    pub fn bytes(self) -> Vec<u8> {
        let opset = OperatorSetIdProto { domain: String::new(), version: 14 };
        let graph = Some(self.0);
        ModelProto { ir_version: 8, opset_import: vec![opset], graph, ..ModelProto::default() }
            .encode_to_vec()
    }

    /// The graph as an attribute of an operator.
    pub fn attribute(self, name: &str) -> AttributeProto {
        let name = name.to_owned();
        AttributeProto { name, r#type: AttributeType::Graph as i32, g: Some(self.0), ..Default::default() }
    }
}

fn value(name: &str, dtype: DataType, axes: &[&str]) -> ValueInfoProto {
    let dim = axes.iter().map(|axis| Dimension {
        value: Some(match axis.parse() {
            Ok(size) => dimension::Value::DimValue(size),
            Err(_) => dimension::Value::DimParam((*axis).to_owned()),
        }),
        ..Dimension::default()
    });
    let shape = TensorShapeProto { dim: dim.collect() };
    let tensor = type_proto::Tensor { elem_type: dtype as i32, shape: Some(shape) };
    let ty = TypeProto { value: Some(Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(ty), ..ValueInfoProto::default() }
}

pub fn f32s(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    let raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(name, DataType::Float, dims, raw_data)
}

pub fn zeros(name: &str, dims: &[i64]) -> TensorProto {
    let elements: i64 = dims.iter().product();
    f32s(name, dims, &vec![0.0; usize::try_from(elements).unwrap()])
}

pub fn i64s(name: &str, dims: &[i64], values: &[i64]) -> TensorProto {
    let raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(name, DataType::Int64, dims, raw_data)
}

pub fn tensor(name: &str, dtype: DataType, dims: &[i64], raw_data: Vec<u8>) -> TensorProto {
    let (name, dims) = (name.to_owned(), dims.to_vec());
    TensorProto { name, dims, data_type: dtype as i32, raw_data, ..TensorProto::default() }
}

pub fn text(name: &str, value: &str) -> AttributeProto {
    let (name, s) = (name.to_owned(), value.as_bytes().to_vec());
    AttributeProto { name, r#type: AttributeType::String as i32, s, ..Default::default() }
}

pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type: AttributeType::Int as i32, i, ..Default::default() }
}

/// `y = tanh(x)` on `f32 [axes]`.
pub fn tanh(axes: &[&str]) -> Vec<u8> {
    Graph::default()
        .input("x", DataType::Float, axes)
        .node("Tanh", &["x"], "y")
        .output("y", DataType::Float, axes)
        .bytes()
}

/// `y = x · w` with `w: f32 [width, width]`.
pub fn product(rows: &str, width: i64) -> Vec<u8> {
    let axes = [rows, &width.to_string()];
    Graph::default()
        .input("x", DataType::Float, &axes)
        .tensor(zeros("w", &[width, width]))
        .node("MatMul", &["x", "w"], "y")
        .output("y", DataType::Float, &axes)
        .bytes()
}

/// `x: f32 [n, 1, h, w]` made one and a half times as high and wide, which the engine can only prepare shape by shape.
pub fn enlarge() -> Vec<u8> {
    Graph::default()
        .input("x", DataType::Float, &["n", "1", "h", "w"])
        .tensor(f32s("scales", &[4], &[1.0, 1.0, 1.5, 1.5]))
        .node_with("Resize", &["x", "", "scales"], "y", vec![text("mode", "linear")])
        .output("y", DataType::Float, &["n", "1", "h2", "w2"])
        .bytes()
}

/// `if cond { then } else { x }`
pub fn branch(then: Graph) -> Vec<u8> {
    let otherwise = Graph::default().node("Identity", &["x"], "e").output("e", DataType::Float, &["2"]);
    Graph::default()
        .input("cond", DataType::Bool, &[])
        .input("x", DataType::Float, &["2"])
        .node_with(
            "If",
            &["cond"],
            "y",
            vec![then.attribute("then_branch"), otherwise.attribute("else_branch")],
        )
        .output("y", DataType::Float, &["2"])
        .bytes()
}
