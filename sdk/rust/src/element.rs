//! The element types that tensors can have, and their bytes: little-endian, row-major, as `wasi:nn` says.

use half::{bf16, f16};

use crate::tensor::Dtype;

/// A type that tensors hold: `f32`, `f64`, [`f16`], [`bf16`], `u8`, `i32` and `i64`.
pub trait Element: bytemuck::Pod + sealed::Sealed {
    /// The element type's name in `wasi:nn`.
    const DTYPE: Dtype;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! element {
    ($type:ty, $dtype:ident) => {
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    };
}

element!(f32, F32);
element!(f64, F64);
element!(f16, F16);
element!(bf16, Bf16);
element!(u8, U8);
element!(i32, I32);
element!(i64, I64);

/// The elements' bytes, without a copy.
pub(crate) fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    const { assert!(cfg!(target_endian = "little"), "tensor bytes are little-endian") };
    bytemuck::cast_slice(elements)
}

/// The elements in `bytes`, or `None` if the bytes are not a whole number of them.
pub(crate) fn elements_of<T: Element>(bytes: &[u8]) -> Option<Vec<T>> {
    if !bytes.len().is_multiple_of(size_of::<T>()) {
        return None;
    }
    Some(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_survive_the_way_through_bytes() {
        let values = [1.5f32, -0.0, f32::MAX];
        assert_eq!(elements_of::<f32>(bytes_of(&values)).unwrap(), values);
        let values = [i64::MIN, 7];
        assert_eq!(elements_of::<i64>(bytes_of(&values)).unwrap(), values);
        let values = [f16::ONE, f16::from_bits(0xffff)];
        assert_eq!(bytes_of(&values), [0, 0x3c, 0xff, 0xff]);
        assert_eq!(elements_of::<i32>(&[1, 2, 3]), None);
    }
}
