//! What callers give a model and get from it, as far as the engine and the model's own words tell.

use std::collections::HashSet;

use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::dimension;
use tract_onnx::pb::type_proto::Value;
use tract_onnx::pb::{ModelProto, ValueInfoProto};
use tract_onnx::prelude::{InferenceModel, SymbolScope, TDim, TVec};
use tract_onnx::tract_hir::infer::{Factoid, InferenceFact, ShapeFactoid};

use super::convert::our_dtype;
use super::{EngineDtype, invalid};
use crate::Error;
use crate::model::{Dim, TensorSpec};

/// The names of the inputs that callers must give, and what is said of the outputs, in the order that the engine keeps.
pub(super) fn names(proto: &ModelProto) -> Result<(Vec<String>, Vec<ValueInfoProto>), Error> {
    let graph = proto.graph.as_ref().ok_or_else(|| {
        Error::InvalidModel("the bytes are not ONNX (there is no graph in them)".to_owned())
    })?;
    let given: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let inputs = graph.input.iter().map(|input| &input.name).filter(|name| !given.contains(name.as_str()));
    Ok((inputs.cloned().collect(), graph.output.clone()))
}

/// An output as the model declares it, where the engine cannot tell before it knows the inputs' shapes.
pub(super) fn declared_spec(output: &ValueInfoProto) -> Result<TensorSpec, Error> {
    let what = format!("output `{}`", output.name);
    let Some(Value::TensorType(tensor)) = output.r#type.as_ref().and_then(|ty| ty.value.as_ref()) else {
        return Err(Error::InvalidModel(format!("{what} has no element type")));
    };
    let known = DataType::try_from(tensor.elem_type).ok();
    let dtype = known.and_then(|dtype| EngineDtype::try_from(dtype).ok()).and_then(our_dtype);
    let dtype = dtype.ok_or_else(|| {
        let dtype =
            known.map_or_else(|| tensor.elem_type.to_string(), |dtype| format!("{dtype:?}").to_lowercase());
        Error::UnsupportedDtype { what, dtype }
    })?;
    let dims = tensor.shape.iter().flat_map(|shape| &shape.dim);
    let shape = dims.map(|dim| match &dim.value {
        Some(dimension::Value::DimValue(size)) if *size >= 0 => {
            usize::try_from(*size).map_or(unknown(), Dim::Fixed)
        }
        Some(dimension::Value::DimParam(name)) if !name.is_empty() => Dim::Computed(name.clone()),
        _ => unknown(),
    });
    Ok(TensorSpec { name: output.name.clone(), dtype, shape: shape.collect() })
}

pub(super) fn unknown() -> Dim {
    Dim::Computed("?".to_owned())
}

/// Gives each input axis of unknown extent a symbol of its own, so that the engine can reason about it.
pub(super) fn name_unknown_dims(model: &mut InferenceModel) -> Result<(), Error> {
    let symbols: SymbolScope = model.symbols.clone();
    for index in 0..model.inputs.len() {
        let fact = model.input_fact(index).map_err(invalid)?.clone();
        let rank = fact.shape.rank().concretize().ok_or_else(|| {
            Error::InvalidModel(format!("input {index} has no shape: give it at least its number of axes"))
        })?;
        let dims = fact.shape.dims().take(usize::try_from(rank).unwrap_or(0));
        let named: TVec<TDim> = dims
            .map(|dim| dim.concretize().unwrap_or_else(|| symbols.new_with_prefix("dim").into()))
            .collect();
        let fact: InferenceFact = fact.with_shape(ShapeFactoid::from(named));
        model.set_input_fact(index, fact).map_err(invalid)?;
    }
    Ok(())
}

pub(super) fn specs(
    what: &str,
    names: Vec<String>,
    facts: Vec<InferenceFact>,
) -> Result<Vec<TensorSpec>, Error> {
    if names.len() != facts.len() {
        return Err(Error::InvalidModel(format!(
            "it declares {} {what}s and has {}",
            names.len(),
            facts.len()
        )));
    }
    names
        .into_iter()
        .zip(facts)
        .map(|(name, fact)| {
            let what = format!("{what} `{name}`");
            let declared = fact
                .datum_type
                .concretize()
                .ok_or_else(|| Error::InvalidModel(format!("{what} has no element type")))?;
            let dtype = our_dtype(declared).ok_or_else(|| Error::UnsupportedDtype {
                what,
                dtype: format!("{declared:?}").to_lowercase(),
            })?;
            let shape = fact.shape.dims().map(|dim| match dim.concretize() {
                Some(dim) => our_dim(&dim),
                None => unknown(),
            });
            let rank =
                fact.shape.rank().concretize().and_then(|rank| usize::try_from(rank).ok()).unwrap_or(0);
            Ok(TensorSpec { name, dtype, shape: shape.take(rank).collect() })
        })
        .collect()
}

pub(super) fn our_dim(dim: &TDim) -> Dim {
    match dim {
        TDim::Sym(symbol) => Dim::Symbol(symbol.to_string()),
        dim => match dim.to_i64().ok().and_then(|size| usize::try_from(size).ok()) {
            Some(size) => Dim::Fixed(size),
            None => Dim::Computed(dim.to_string()),
        },
    }
}
