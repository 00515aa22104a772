//! A model's inputs and outputs as structs of a function's own.
//!
//! ```
//! use weir_sdk::{Array, Error, Inputs, Model, Outputs, Tensor};
//!
//! #[derive(Inputs)]
//! struct Features {
//!     x: Array<f32>,
//!     #[weir(name = "input:mask")]
//!     mask: Vec<i64>,
//! }
//!
//! #[derive(Outputs)]
//! struct Scores {
//!     scores: Array<f32>,
//!     hidden: Tensor, // stays with the host, for the next model
//! }
//!
//! # fn example() -> Result<(), Error> {
//! let features = Features { x: Array::new(&[1, 2], vec![0.5, 1.5])?, mask: vec![1, 1] };
//! let Scores { scores, hidden } = Model::open("scores")?.run(features)?.read()?;
//! # Ok(()) }
//! ```

use crate::element::Element;
use crate::{Error, Outputs, Tensor};

/// Named inputs for one run of a model: a list of names and tensors, or a struct that has `#[derive(Inputs)]`, whose fields are
/// [`ToTensor`].
pub trait Inputs {
    /// The names and tensors, in order.
    fn into_inputs(self) -> Result<Vec<(String, Tensor)>, Error>;
}

impl<N: Into<String>, const COUNT: usize> Inputs for [(N, Tensor); COUNT] {
    fn into_inputs(self) -> Result<Vec<(String, Tensor)>, Error> {
        Ok(self.into_iter().map(|(name, tensor)| (name.into(), tensor)).collect())
    }
}

impl<N: Into<String>> Inputs for Vec<(N, Tensor)> {
    fn into_inputs(self) -> Result<Vec<(String, Tensor)>, Error> {
        Ok(self.into_iter().map(|(name, tensor)| (name.into(), tensor)).collect())
    }
}

/// The outputs of one run as a type: a struct that has `#[derive(Outputs)]`, whose fields are [`FromTensor`].
pub trait FromOutputs: Sized {
    /// Takes what it needs; errors: 500 `no_such_output`, 400 `invalid_tensor`.
    fn from_outputs(outputs: Outputs) -> Result<Self, Error>;
}

/// What can be given to a model as one input.
pub trait ToTensor {
    /// The tensor, or 400 `invalid_tensor`.
    fn to_tensor(self) -> Result<Tensor, Error>;
}

/// What one output of a model can be read as.
pub trait FromTensor: Sized {
    /// The value, or 400 `invalid_tensor` where the element type or the shape is another.
    fn from_tensor(tensor: Tensor) -> Result<Self, Error>;
}

/// One field of `#[derive(Inputs)]`.
#[doc(hidden)]
pub fn input(name: &str, value: impl ToTensor) -> Result<(String, Tensor), Error> {
    let tensor = value.to_tensor().map_err(|error| error.about(&format!("input `{name}`")))?;
    Ok((name.to_string(), tensor))
}

/// One field of `#[derive(Outputs)]`.
#[doc(hidden)]
pub fn output<T: FromTensor>(outputs: &mut Outputs, name: &str) -> Result<T, Error> {
    T::from_tensor(outputs.take(name)?).map_err(|error| error.about(&format!("output `{name}`")))
}

/// Elements of any shape, row-major, in the function's own memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<T> {
    shape: Vec<usize>,
    elements: Vec<T>,
}

impl<T> Array<T> {
    /// An array of this shape, whose dimensions' product is the number of elements; otherwise 400 `invalid_tensor`.
    pub fn new(shape: &[usize], elements: Vec<T>) -> Result<Self, Error> {
        crate::tensor::dimensions(shape, elements.len())?;
        Ok(Self { shape: shape.to_vec(), elements })
    }

    /// The size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// All elements, row-major.
    pub fn elements(&self) -> &[T] {
        &self.elements
    }

    /// All elements, row-major.
    pub fn into_elements(self) -> Vec<T> {
        self.elements
    }

    /// The rows: the elements of each index of the first dimension.
    pub fn rows(&self) -> impl Iterator<Item = &[T]> {
        let count = self.shape.first().copied().unwrap_or(1);
        let width = self.elements.len().checked_div(count).unwrap_or(0);
        (0..count).map(move |row| self.elements.get(row * width..(row + 1) * width).unwrap_or_default())
    }
}

impl ToTensor for Tensor {
    fn to_tensor(self) -> Result<Tensor, Error> {
        Ok(self)
    }
}

impl FromTensor for Tensor {
    fn from_tensor(tensor: Tensor) -> Result<Self, Error> {
        Ok(tensor)
    }
}

impl<T: Element> ToTensor for Array<T> {
    fn to_tensor(self) -> Result<Tensor, Error> {
        Tensor::new(&self.shape, &self.elements)
    }
}

impl<T: Element> FromTensor for Array<T> {
    fn from_tensor(tensor: Tensor) -> Result<Self, Error> {
        Ok(Self { shape: tensor.shape(), elements: tensor.to_vec()? })
    }
}

/// One dimension.
impl<T: Element> ToTensor for Vec<T> {
    fn to_tensor(self) -> Result<Tensor, Error> {
        Tensor::new(&[self.len()], &self)
    }
}

/// All elements, whatever the shape.
impl<T: Element> FromTensor for Vec<T> {
    fn from_tensor(tensor: Tensor) -> Result<Self, Error> {
        tensor.to_vec()
    }
}

/// No dimension: one element.
impl<T: Element> ToTensor for T {
    fn to_tensor(self) -> Result<Tensor, Error> {
        Tensor::new(&[], &[self])
    }
}

/// A tensor of one element, whatever the number of its dimensions.
impl<T: Element> FromTensor for T {
    fn from_tensor(tensor: Tensor) -> Result<Self, Error> {
        let elements: Vec<T> = tensor.to_vec()?;
        match elements[..] {
            [element] => Ok(element),
            _ => Err(Error::new(
                400,
                "invalid_tensor",
                format!("expected one element, got the shape {:?}", tensor.shape()),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use crate::testing::Host;

    #[derive(crate::Inputs)]
    struct Given {
        x: Array<f32>,
        #[weir(name = "y:0")]
        y: i64,
    }

    #[derive(crate::Outputs)]
    struct Got {
        sum: Array<f32>,
        #[weir(name = "count:0")]
        count: i64,
        kept: Tensor,
    }

    #[test]
    fn structs_are_inputs_and_outputs() {
        let host = Host::new().with_model("m", |mut inputs| {
            assert_eq!(inputs.names().collect::<Vec<_>>(), ["x", "y:0"]);
            let (x, y) = (inputs.take("x")?, i64::from_tensor(inputs.take("y:0")?)?);
            let sums: Vec<f32> = Array::<f32>::from_tensor(x)?.rows().map(|row| row.iter().sum()).collect();
            Ok(vec![
                ("count:0".to_string(), Tensor::new(&[1, 1], &[y + 1])?),
                ("sum".to_string(), sums.to_tensor()?),
                ("kept".to_string(), Tensor::new(&[0, 3], &[] as &[u8])?),
                ("more".to_string(), 1u8.to_tensor()?),
            ])
        });
        host.start().run(|| {
            let given = Given { x: Array::new(&[2, 2], vec![1., 2., 3., 4.]).unwrap(), y: 6 };
            let outputs = Model::open("m").unwrap().run(given).unwrap();
            let Got { sum, count, kept } = outputs.read().unwrap();
            assert_eq!((sum, count), (Array::new(&[2], vec![3., 7.]).unwrap(), 7));
            assert_eq!(kept.shape(), [0, 3]);
        });
    }

    #[test]
    fn what_does_not_fit_says_so() {
        assert_eq!(Array::new(&[3], vec![1u8]).unwrap_err().code(), "invalid_tensor");
        let tensor = Tensor::new(&[2], &[1f32, 2.]).unwrap();
        assert_eq!(f32::from_tensor(tensor).unwrap_err().detail(), "expected one element, got the shape [2]");
        let outputs = Outputs::of("m", vec![("sum".to_string(), 1f64.to_tensor().unwrap())]);
        let error = outputs.read::<Got>().map(|_| ()).unwrap_err();
        assert_eq!(error.detail(), "output `sum`: the tensor holds f64, asked for f32");
        let error = Outputs::of("m", vec![]).read::<Got>().map(|_| ()).unwrap_err();
        assert_eq!(error.code(), "no_such_output");
    }
}
