//! Tensors into the engine and out of it.

use std::sync::Arc;

use bytes::Bytes;
use tract_onnx::prelude::{IntoArcTensor, TValue};

use super::{EngineDtype, EngineTensor, failed};
use crate::Error;
use crate::model::TensorSpec;
use crate::tensor::{Dtype, Tensor};

pub(super) fn our_dtype(dtype: EngineDtype) -> Option<Dtype> {
    Some(match dtype {
        EngineDtype::Bool => Dtype::Bool,
        EngineDtype::U8 => Dtype::U8,
        EngineDtype::U16 => Dtype::U16,
        EngineDtype::U32 => Dtype::U32,
        EngineDtype::U64 => Dtype::U64,
        EngineDtype::I8 => Dtype::I8,
        EngineDtype::I16 => Dtype::I16,
        EngineDtype::I32 => Dtype::I32,
        // The engine's dimension type stands for ONNX's int64 in shape computations.
        EngineDtype::I64 | EngineDtype::TDim => Dtype::I64,
        EngineDtype::F16 => Dtype::F16,
        EngineDtype::F32 => Dtype::F32,
        EngineDtype::F64 => Dtype::F64,
        _ => return None,
    })
}

fn engine_dtype(dtype: Dtype) -> Option<EngineDtype> {
    Some(match dtype {
        Dtype::Bool => EngineDtype::Bool,
        Dtype::U8 => EngineDtype::U8,
        Dtype::U16 => EngineDtype::U16,
        Dtype::U32 => EngineDtype::U32,
        Dtype::U64 => EngineDtype::U64,
        Dtype::I8 => EngineDtype::I8,
        Dtype::I16 => EngineDtype::I16,
        Dtype::I32 => EngineDtype::I32,
        Dtype::I64 => EngineDtype::I64,
        Dtype::F16 => EngineDtype::F16,
        Dtype::F32 => EngineDtype::F32,
        Dtype::F64 => EngineDtype::F64,
        Dtype::Bf16 => return None,
    })
}

/// Copies a tensor into memory of the engine's own, which it needs aligned. One of the two copies of an input (the
/// other brings it out of the guest).
pub(super) fn to_engine(tensor: &Tensor) -> Result<TValue, Error> {
    let dtype = engine_dtype(tensor.dtype()).ok_or_else(|| Error::UnsupportedDtype {
        what: "an input".to_owned(),
        dtype: tensor.dtype().to_string(),
    })?;
    // A bool that is neither 0 nor 1 would be undefined behaviour inside the engine.
    if tensor.dtype() == Dtype::Bool && tensor.data().iter().any(|byte| *byte > 1) {
        return Err(Error::InvalidTensor("a bool tensor has bytes other than 0 and 1".to_owned()));
    }
    let mut engine = EngineTensor::zero_dt(dtype, tensor.shape()).map_err(failed)?;
    engine.as_bytes_mut().copy_from_slice(tensor.data());
    Ok(engine.into())
}

/// Shares an output's memory with the engine's tensor; nothing is copied.
pub(super) fn from_engine(value: TValue, spec: &TensorSpec) -> Result<Tensor, Error> {
    struct Owner(Arc<EngineTensor>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            self.0.as_plain_ram_storage().map(|storage| storage.as_bytes()).unwrap_or_default()
        }
    }
    let mut tensor = value.into_arc_tensor();
    if tensor.datum_type() == EngineDtype::TDim {
        tensor = tensor.cast_to_dt(EngineDtype::I64).map_err(failed)?.into_owned().into_arc_tensor();
    }
    if our_dtype(tensor.datum_type()) != Some(spec.dtype) || tensor.as_plain_ram_storage().is_none() {
        return Err(Error::Engine(format!(
            "output `{}` came out as {:?}, its signature says {}",
            spec.name,
            tensor.datum_type(),
            spec.dtype
        )));
    }
    let shape = tensor.shape().to_vec();
    Tensor::new(spec.dtype, shape, Bytes::from_owner(Owner(tensor)))
}
