//! Tensors as they cross the door: an element type, a shape, and the elements' bytes.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Dtype {
    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The name that signatures and errors show, such as `f32`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A dense tensor: elements in row-major order, little-endian, without padding. Cloning shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    data: Bytes,
}

impl Tensor {
    /// A tensor of `shape` (elements per axis; empty for a scalar) over `data`.
    ///
    /// # Errors
    /// [`Error::InvalidTensor`] when `data` is not exactly as long as dtype and shape say, or when that length
    /// does not fit in memory's address range.
    pub fn new(dtype: Dtype, shape: Vec<usize>, data: Bytes) -> Result<Self, Error> {
        let expected =
            shape.iter().try_fold(dtype.size(), |size, axis| size.checked_mul(*axis)).ok_or_else(|| {
                Error::InvalidTensor(format!("a {dtype} tensor of shape {shape:?} is too large"))
            })?;
        if expected != data.len() {
            return Err(Error::wrong_length(dtype, &shape, expected, data.len()));
        }
        Ok(Self { dtype, shape, data })
    }

    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Elements per axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements' bytes.
    pub fn data(&self) -> &Bytes {
        &self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_must_match_shape_and_dtype() {
        assert!(Tensor::new(Dtype::F32, vec![2, 3], Bytes::from(vec![0; 24])).is_ok());
        assert!(Tensor::new(Dtype::F32, vec![], Bytes::from(vec![0; 4])).is_ok(), "a scalar has one element");
        assert!(
            Tensor::new(Dtype::I64, vec![0, 7], Bytes::new()).is_ok(),
            "an empty axis empties the tensor"
        );
        let error = Tensor::new(Dtype::F16, vec![2, 3], Bytes::from(vec![0; 24])).unwrap_err();
        assert_eq!(error.to_string(), "a f16 tensor of shape [2, 3] has 12 bytes, given 24");
    }

    #[test]
    fn a_shape_whose_size_overflows_is_refused() {
        let shape = vec![usize::MAX, 2];
        assert!(matches!(Tensor::new(Dtype::U8, shape, Bytes::new()), Err(Error::InvalidTensor(_))));
    }
}
