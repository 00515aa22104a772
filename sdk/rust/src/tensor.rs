//! Tensors: a shape, an element type, and data that stays with the host.

use std::fmt;

use crate::element::{Element, bytes_of, elements_of};
use crate::{Error, host};

/// An element type of `wasi:nn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    /// 16-bit IEEE 754 floating point.
    F16,
    /// 32-bit IEEE 754 floating point.
    F32,
    /// 64-bit IEEE 754 floating point.
    F64,
    /// 16-bit brain floating point.
    Bf16,
    /// 8-bit unsigned integer.
    U8,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
}

/// A model's input or output: a handle to data that the host holds, row-major.
///
/// Making one copies the elements to the host; reading one copies them back; passing an output on as another
/// model's input copies nothing.
#[derive(Debug)]
pub struct Tensor {
    pub(crate) host: host::Tensor,
}

impl Tensor {
    /// A tensor of this shape with these elements. Their number must be the product of the shape's
    /// dimensions, which is 1 for the shape `[]`; otherwise 400 `invalid_tensor`.
    pub fn new<T: Element>(shape: &[usize], elements: &[T]) -> Result<Self, Error> {
        let dimensions = dimensions(shape, elements.len())?;
        Ok(Self { host: host::Tensor::new(&dimensions, T::DTYPE, bytes_of(elements)) })
    }

    /// The size of each dimension.
    pub fn shape(&self) -> Vec<usize> {
        self.host.shape().into_iter().map(|size| size as usize).collect()
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.host.dtype()
    }

    /// The elements, copied from the host. 400 `invalid_tensor` if `T` is not the tensor's element type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        let given = self.dtype();
        if given != T::DTYPE {
            return Err(invalid(format!("the tensor holds {given}, asked for {}", T::DTYPE)));
        }
        let bytes = self.host.bytes();
        elements_of(&bytes)
            .ok_or_else(|| invalid(format!("{} bytes are no whole number of {given}", bytes.len())))
    }

    /// The elements' bytes, little-endian, copied from the host.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.host.bytes()
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bf16 => "bf16",
            Self::U8 => "u8",
            Self::I32 => "i32",
            Self::I64 => "i64",
        })
    }
}

/// The shape as `wasi:nn` wants it, if it holds exactly `count` elements.
pub(crate) fn dimensions(shape: &[usize], count: usize) -> Result<Vec<u32>, Error> {
    let needed = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    if needed != Some(count) {
        let needed = needed.map_or("too many to count".to_string(), |needed| needed.to_string());
        return Err(invalid(format!("shape {shape:?} needs {needed} elements, given {count}")));
    }
    shape
        .iter()
        .map(|&size| {
            u32::try_from(size).map_err(|_| invalid(format!("shape {shape:?} has a dimension beyond 2^32")))
        })
        .collect()
}

fn invalid(detail: String) -> Error {
    Error::new(400, "invalid_tensor", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_must_fit_its_elements() {
        assert_eq!(dimensions(&[2, 3], 6).unwrap(), [2, 3]);
        assert!(dimensions(&[], 1).unwrap().is_empty());
        assert_eq!(dimensions(&[0, 5], 0).unwrap(), [0, 5]);
        let error = dimensions(&[2, 3], 5).unwrap_err();
        assert_eq!(error.to_string(), "400 invalid_tensor: shape [2, 3] needs 6 elements, given 5");
        let error = dimensions(&[usize::MAX, 2], 5).unwrap_err();
        assert!(error.detail().contains("too many to count"), "{error}");
    }
}
