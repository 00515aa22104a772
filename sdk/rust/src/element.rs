//! The element types that tensors can have, and their bytes: little-endian, row-major, as `wasi:nn` says.

use crate::tensor::Dtype;

/// A type that tensors hold: `f32`, `f64`, [`F16`], [`Bf16`], `u8`, `i32` and `i64`.
pub trait Element: Copy + sealed::Sealed {
    /// The element type's name in `wasi:nn`.
    const DTYPE: Dtype;
}

/// An IEEE 754 half-precision number, as its 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct F16(pub u16);

/// A bfloat16 number, as its 16 bits: the upper half of an `f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Bf16(pub u16);

pub(crate) mod sealed {
    /// Implemented only for types that every bit pattern is a value of, and that have no padding.
    pub trait Sealed: Sized {
        fn from_le(bytes: &[u8]) -> Option<Self>;
    }
}

macro_rules! element {
    ($type:ty, $dtype:ident, $from:expr) => {
        impl sealed::Sealed for $type {
            fn from_le(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map($from)
            }
        }

        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    };
}

element!(f32, F32, f32::from_le_bytes);
element!(f64, F64, f64::from_le_bytes);
element!(F16, F16, |bytes| F16(u16::from_le_bytes(bytes)));
element!(Bf16, Bf16, |bytes| Bf16(u16::from_le_bytes(bytes)));
element!(u8, U8, u8::from_le_bytes);
element!(i32, I32, i32::from_le_bytes);
element!(i64, I64, i64::from_le_bytes);

/// The elements' bytes, without a copy.
#[allow(unsafe_code)]
pub(crate) fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    const { assert!(cfg!(target_endian = "little"), "tensor bytes are little-endian") };
    // SAFETY: `Element` is sealed to types without padding, any byte is a valid `u8`, and `u8` needs no
    // alignment.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The elements in `bytes`, or `None` if the bytes are not a whole number of them.
pub(crate) fn elements_of<T: Element>(bytes: &[u8]) -> Option<Vec<T>> {
    if !bytes.len().is_multiple_of(size_of::<T>()) {
        return None;
    }
    bytes.chunks_exact(size_of::<T>()).map(T::from_le).collect()
}

impl Bf16 {
    /// The nearest bfloat16, ties to even.
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        if value.is_nan() {
            return Self((bits >> 16) as u16 | 0x40);
        }
        Self((bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }

    /// The same number as an `f32`, exactly.
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

impl F16 {
    /// The nearest half-precision number, ties to even; beyond 65504 it is infinity.
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let sign = (bits >> 16) as u16 & 0x8000;
        let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
        let fraction = bits & 0x007f_ffff;
        let magnitude = if value.is_nan() {
            0x7e00
        } else if exponent >= 31 {
            0x7c00
        } else if exponent > 0 {
            // A carry out of the fraction raises the exponent, as it should.
            shift_to_even((exponent as u32) << 23 | fraction, 13) as u16
        } else if exponent >= -10 {
            shift_to_even(fraction | 0x0080_0000, (14 - exponent) as u32) as u16
        } else {
            0
        };
        Self(sign | magnitude)
    }

    /// The same number as an `f32`, exactly.
    pub fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let exponent = u32::from(self.0 >> 10 & 0x1f);
        let fraction = u32::from(self.0 & 0x3ff);
        match exponent {
            0 => {
                let magnitude = fraction as f32 * 2f32.powi(-24);
                f32::from_bits(magnitude.to_bits() | sign)
            }
            31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
            _ => f32::from_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13),
        }
    }
}

/// `value >> shift`, rounded to nearest, ties to even.
fn shift_to_even(value: u32, shift: u32) -> u32 {
    let half = 1u32 << (shift - 1);
    let odd = value >> shift & 1;
    (value + half - 1 + odd) >> shift
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
        let values = [F16(0x3c00), F16(0xffff)];
        assert_eq!(bytes_of(&values), [0, 0x3c, 0xff, 0xff]);
        assert_eq!(elements_of::<i32>(&[1, 2, 3]), None);
    }

    #[test]
    fn every_half_survives_the_way_through_f32() {
        for bits in 0..=u16::MAX {
            let half = F16(bits);
            let back = F16::from_f32(half.to_f32());
            if half.to_f32().is_nan() {
                assert!(back.to_f32().is_nan());
            } else {
                assert_eq!(back, half);
            }
            let brain = Bf16(bits);
            if !brain.to_f32().is_nan() {
                assert_eq!(Bf16::from_f32(brain.to_f32()), brain);
            }
        }
    }

    #[test]
    fn halves_round_to_nearest_even() {
        assert_eq!(F16::from_f32(1.0), F16(0x3c00));
        assert_eq!(F16::from_f32(1.0 + 1.0 / 2048.0), F16(0x3c00));
        assert_eq!(F16::from_f32(1.0 + 3.0 / 2048.0), F16(0x3c02));
        assert_eq!(F16::from_f32(65519.0), F16(0x7bff));
        assert_eq!(F16::from_f32(65520.0), F16(0x7c00));
        assert_eq!(F16::from_f32(2f32.powi(-25)), F16(0));
        assert_eq!(F16::from_f32(-1.5 * 2f32.powi(-25)), F16(0x8001));
        assert_eq!(Bf16::from_f32(1.0 + 1.0 / 256.0), Bf16(0x3f80));
        assert_eq!(Bf16::from_f32(1.0 + 3.0 / 256.0), Bf16(0x3f82));
    }
}
