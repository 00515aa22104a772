//! What is wrong with a model before the engine sees any of it.
//!
//! The bytes are hostile. A tensor may name a file of the host as its data, claim more elements than any memory holds,
//! or have fewer bytes than it claims; all of that, wherever in the model it is, ends here, with the tensor's name.

use tract_onnx::model::OnnxOpRegister;
use tract_onnx::pb::tensor_proto::{DataLocation, DataType};
use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto};

use crate::Error;
use crate::examine::ModelLimits;

/// Graphs inside graphs, at most. The decoder allows 100 messages inside each other, which is 33 graphs.
const MAX_NESTING: usize = 40;

struct Checks<'a> {
    known: &'a OnnxOpRegister,
    limits: &'a ModelLimits,
}

/// # Errors
/// [`Error::InvalidModel`] with the name of the tensor or operator that is refused, and the reason;
/// [`Error::ModelMemory`] for tensors of more bytes than a model may need.
pub(super) fn check(model: &ModelProto, known: &OnnxOpRegister, limits: &ModelLimits) -> Result<(), Error> {
    let checks = Checks { known, limits };
    if let Some(graph) = &model.graph {
        checks.graph(graph, 0)?;
    }
    for training in &model.training_info {
        for graph in training.initialization.iter().chain(&training.algorithm) {
            checks.graph(graph, 0)?;
        }
    }
    // The engine ignores functions: an operator that only a function defines is not known to it.
    for node in model.functions.iter().flat_map(|function| &function.node) {
        checks.attributes(node, 0)?;
    }
    Ok(())
}

impl Checks<'_> {
    fn graph(&self, graph: &GraphProto, depth: usize) -> Result<(), Error> {
        if depth > MAX_NESTING {
            return Err(Error::InvalidModel(format!("it has graphs nested more than {MAX_NESTING} deep")));
        }
        for tensor in &graph.initializer {
            self.tensor(tensor, &tensor.name)?;
        }
        for tensor in &graph.sparse_initializer {
            self.sparse(tensor)?;
        }
        for node in &graph.node {
            if !self.known.0.contains_key(&node.op_type) {
                let name = shown(&node.op_type);
                return Err(Error::InvalidModel(format!("operator `{name}` is not known to the engine")));
            }
            self.attributes(node, depth)?;
        }
        Ok(())
    }

    fn attributes(&self, node: &NodeProto, depth: usize) -> Result<(), Error> {
        for attribute in &node.attribute {
            let AttributeProto { t, tensors, g, graphs, sparse_tensor, sparse_tensors, .. } = attribute;
            for tensor in t.iter().chain(tensors) {
                let name = if tensor.name.is_empty() { &attribute.name } else { &tensor.name };
                self.tensor(tensor, name)?;
            }
            for tensor in sparse_tensor.iter().chain(sparse_tensors) {
                self.sparse(tensor)?;
            }
            for graph in g.iter().chain(graphs) {
                self.graph(graph, depth + 1)?;
            }
        }
        Ok(())
    }

    fn sparse(&self, tensor: &SparseTensorProto) -> Result<(), Error> {
        let name = tensor.values.as_ref().map_or("", |values| &values.name);
        for part in tensor.values.iter().chain(&tensor.indices) {
            self.tensor(part, name)?;
        }
        self.bytes(name, &tensor.dims, 1).map(|_| ())
    }

    fn tensor(&self, tensor: &TensorProto, name: &str) -> Result<(), Error> {
        let external = tensor.data_location == Some(DataLocation::External as i32);
        if external || !tensor.external_data.is_empty() {
            return Err(wrong(name, "keeps its data in another file; a model has to be one file"));
        }
        let dtype = DataType::try_from(tensor.data_type).ok();
        let claimed = self.bytes(name, &tensor.dims, dtype.and_then(size_of).unwrap_or(1))?;
        let given = tensor.raw_data.len();
        if given > 0 && dtype.and_then(size_of).is_some() && u64::try_from(given).ok() != Some(claimed) {
            return Err(wrong(name, &format!("has {given} bytes of data; its shape says {claimed}")));
        }
        Ok(())
    }

    /// The bytes of a tensor of this shape.
    fn bytes(&self, name: &str, dims: &[i64], size_of: u64) -> Result<u64, Error> {
        let mut bytes = Some(size_of);
        for dim in dims {
            let dim = u64::try_from(*dim)
                .map_err(|_| wrong(name, &format!("has an axis of {dim} elements: {dims:?}")))?;
            bytes = bytes.and_then(|bytes| bytes.checked_mul(dim));
        }
        let bytes = bytes.ok_or_else(|| wrong(name, &format!("has a shape that is too large: {dims:?}")))?;
        if bytes > self.limits.memory {
            return Err(Error::ModelMemory { needed: bytes, most: self.limits.memory });
        }
        Ok(bytes)
    }
}

fn wrong(name: &str, what: &str) -> Error {
    Error::InvalidModel(format!("tensor `{}` {what}", shown(name)))
}

/// Names are the tenant's own words, of any length.
fn shown(name: &str) -> String {
    name.chars().take(100).collect()
}

/// Bytes of one element, where all elements have as many.
fn size_of(dtype: DataType) -> Option<u64> {
    Some(match dtype {
        DataType::Bool | DataType::Uint8 | DataType::Int8 => 1,
        DataType::Uint16 | DataType::Int16 | DataType::Float16 | DataType::Bfloat16 => 2,
        DataType::Uint32 | DataType::Int32 | DataType::Float => 4,
        DataType::Uint64 | DataType::Int64 | DataType::Double | DataType::Complex64 => 8,
        DataType::Complex128 => 16,
        _ => return None,
    })
}
