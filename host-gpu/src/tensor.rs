//! Tensors as they cross the door: an element type, a shape, and the elements' bytes.

use std::fmt;

use bytes::{Bytes, BytesMut};
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

    /// Tensors that agree in all but their first axis as one, with `zeros` more rows of zeros.
    ///
    /// # Errors
    /// [`Error::InvalidTensor`] if they do not agree, or have no first axis.
    pub(crate) fn stack(tensors: &[&Self], zeros: usize) -> Result<Self, Error> {
        let cannot = || Error::InvalidTensor("tensors that do not agree cannot be one batch".to_owned());
        let (first, axes) =
            tensors.first().and_then(|first| Some((first, first.shape.get(1..)?))).ok_or_else(cannot)?;
        let mut rows = zeros;
        let mut data = BytesMut::with_capacity(tensors.iter().map(|tensor| tensor.data.len()).sum());
        for tensor in tensors {
            let agrees = tensor.dtype == first.dtype && tensor.shape.get(1..) == Some(axes);
            let own = tensor.shape.first().filter(|_| agrees).ok_or_else(cannot)?;
            rows = rows.saturating_add(*own);
            data.extend_from_slice(&tensor.data);
        }
        let row = axes.iter().try_fold(first.dtype.size(), |size, axis| size.checked_mul(*axis));
        let length = row.and_then(|row| row.checked_mul(rows)).ok_or_else(cannot)?;
        data.resize(length, 0);
        let shape = [&[rows], axes].concat();
        Self::new(first.dtype, shape, data.freeze())
    }

    /// `rows` rows from the `from`th on. Copies the bytes: one row must not keep a whole batch.
    ///
    /// # Errors
    /// [`Error::InvalidTensor`] if it has not so many.
    pub(crate) fn rows(&self, from: usize, rows: usize) -> Result<Self, Error> {
        let cannot = || Error::InvalidTensor(format!("a tensor of shape {:?} has no such rows", self.shape));
        let (all, axes) = self.shape.split_first().ok_or_else(cannot)?;
        let end = from.checked_add(rows).filter(|end| end <= all).ok_or_else(cannot)?;
        let row = axes.iter().try_fold(self.dtype.size(), |size, axis| size.checked_mul(*axis));
        let bound = |row: usize, at: usize| row.checked_mul(at).ok_or_else(cannot);
        let row = row.ok_or_else(cannot)?;
        let data = self.data.get(bound(row, from)?..bound(row, end)?).ok_or_else(cannot)?;
        Self::new(self.dtype, [&[rows], axes].concat(), Bytes::copy_from_slice(data))
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
    fn rows_come_out_of_a_stack_as_they_went_in() {
        let tensor = |rows: usize, first: u8| {
            let data: Vec<u8> = (first..).take(rows * 2).collect();
            Tensor::new(Dtype::U8, vec![rows, 2], data.into()).unwrap()
        };
        let (one, two) = (tensor(1, 10), tensor(2, 20));
        let stack = Tensor::stack(&[&one, &two], 1).unwrap();
        assert_eq!(stack.shape(), [4, 2]);
        assert_eq!(stack.rows(0, 1).unwrap(), one);
        assert_eq!(stack.rows(1, 2).unwrap(), two);
        assert_eq!(stack.rows(3, 1).unwrap().data()[..], [0, 0]);
        assert!(stack.rows(3, 2).is_err() && stack.rows(usize::MAX, 2).is_err());
        let other = Tensor::new(Dtype::U8, vec![1, 3], Bytes::from(vec![0; 3])).unwrap();
        assert!(Tensor::stack(&[&one, &other], 0).is_err() && Tensor::stack(&[], 1).is_err());
        let scalar = Tensor::new(Dtype::U8, vec![], Bytes::from(vec![0])).unwrap();
        assert!(Tensor::stack(&[&scalar], 0).is_err() && scalar.rows(0, 0).is_err());
    }

    #[test]
    fn a_shape_whose_size_overflows_is_refused() {
        let shape = vec![usize::MAX, 2];
        assert!(matches!(Tensor::new(Dtype::U8, shape, Bytes::new()), Err(Error::InvalidTensor(_))));
    }
}
