//! What a model is before it runs: its bytes' format and its signature.
//!
//! A request is checked against the signature before anything is queued, so that a wrong tensor costs its sender
//! a sentence and the device nothing.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::residency::Keep;
use crate::sched::batch::Batching;
use crate::tensor::{Dtype, Tensor};

/// The formats of model bytes that an engine here reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Onnx,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Self::Onnx => "onnx",
        }
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "onnx" => Ok(Self::Onnx),
            other => Err(Error::UnsupportedFormat(other.to_owned())),
        }
    }
}

/// Where a model's bytes are, and what they are called. The digest stands for the bytes: two sources with the same
/// digest are the same model.
#[derive(Debug, Clone)]
pub struct ModelSource {
    /// SHA-256 of the bytes, in lower-case hex.
    pub digest: Arc<str>,
    pub format: Format,
    pub bytes: ModelBytes,
    pub policy: ModelPolicy,
    /// The bytes that the model needs at one time, as [this engine](crate::ENGINE) found when it examined it. Where it has
    /// not, it does so before it loads it.
    pub examined: Option<u64>,
}

/// How a model is held and run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelPolicy {
    /// Held once for all tenants, and by none of them: its weights are on the account of the system.
    pub public: bool,
    pub keep: Keep,
    /// How long it stays in host memory, read and ready, after it has been put on a device with memory of its own. It makes
    /// room for others there.
    pub host_keep_alive: Duration,
    pub batching: Arc<Batching>,
}

impl ModelPolicy {
    pub(crate) fn keep_on_host(&self) -> Keep {
        Keep { keep_alive: self.host_keep_alive, ..Keep::default() }
    }
}

/// A model's bytes, or the file that holds them. Files are read only when a graph is loaded.
#[derive(Debug, Clone)]
pub enum ModelBytes {
    Memory(Bytes),
    File(PathBuf),
}

impl ModelSource {
    pub fn from_memory(digest: &str, format: Format, bytes: Bytes) -> Self {
        let bytes = ModelBytes::Memory(bytes);
        Self { digest: digest.into(), format, bytes, policy: ModelPolicy::default(), examined: None }
    }

    pub fn from_file(digest: &str, format: Format, path: PathBuf, examined: Option<u64>) -> Self {
        let bytes = ModelBytes::File(path);
        Self { digest: digest.into(), format, bytes, policy: ModelPolicy::default(), examined }
    }

    /// The bytes themselves, from the file if they are in one.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the file cannot be read; why is in the log.
    pub fn read(&self) -> Result<Bytes, Error> {
        match &self.bytes {
            ModelBytes::Memory(bytes) => Ok(bytes.clone()),
            ModelBytes::File(path) => std::fs::read(path).map(Bytes::from).map_err(|error| {
                tracing::error!(digest = %self.digest, %error, "a model's bytes cannot be read");
                Error::InvalidModel("its bytes cannot be read from the store".to_owned())
            }),
        }
    }
}

/// The extent of one axis in a signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dim {
    /// Always this many elements.
    Fixed(usize),
    /// Any number; axes with the same symbol have the same number.
    Symbol(String),
    /// A number computed from symbols, in the engine's notation. Checked by the engine.
    Computed(String),
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Symbol(text) | Self::Computed(text) => f.write_str(text),
        }
    }
}

/// One input or output of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<Dim>,
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<String> = self.shape.iter().map(Dim::to_string).collect();
        write!(f, "{} [{}]", self.dtype, shape.join(", "))
    }
}

/// The inputs and outputs of a model, in the model's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    pub inputs: Vec<TensorSpec>,
    pub outputs: Vec<TensorSpec>,
}

impl Signature {
    /// Checks named tensors against the inputs and puts them in the model's order.
    ///
    /// A single input may also be given under an empty name, or under its position (`"0"`), as guests written for
    /// hosts without named inputs do.
    ///
    /// # Errors
    /// [`Error::InvalidInputs`] for a name that is missing, unknown or given twice; [`Error::InvalidInput`] for a
    /// dtype or shape that does not fit, with the input's name, what was expected and what was given.
    pub fn order_inputs(&self, given: Vec<(String, Tensor)>) -> Result<Vec<Tensor>, Error> {
        let mut slots: Vec<Option<Tensor>> = vec![None; self.inputs.len()];
        for (name, tensor) in given {
            let slot =
                self.position(&name).and_then(|position| slots.get_mut(position)).ok_or_else(|| {
                    Error::InvalidInputs(format!(
                        "the model has no input `{name}`; it has {}",
                        self.input_names()
                    ))
                })?;
            if slot.replace(tensor).is_some() {
                return Err(Error::InvalidInputs(format!("input `{name}` is given twice")));
            }
        }
        let mut symbols = HashMap::new();
        let mut ordered = Vec::with_capacity(slots.len());
        for (spec, slot) in self.inputs.iter().zip(slots) {
            let tensor = slot.ok_or_else(|| {
                Error::InvalidInputs(format!("input `{}` is missing; expected {spec}", spec.name))
            })?;
            spec.check(&tensor, &mut symbols)?;
            ordered.push(tensor);
        }
        Ok(ordered)
    }

    /// The input that a request means by `name`.
    pub fn input(&self, name: &str) -> Option<&TensorSpec> {
        self.position(name).and_then(|position| self.inputs.get(position))
    }

    /// How many rows these inputs bring, if requests for this model can ride together: all its inputs, and all its
    /// outputs as far as is known, vary along their first axis, and along it alone.
    pub(crate) fn rows(&self, inputs: &[Tensor]) -> Option<u64> {
        let Dim::Symbol(batch) = self.inputs.first()?.shape.first()? else { return None };
        let is_batch = |dim: &Dim| matches!(dim, Dim::Symbol(symbol) if symbol == batch);
        let elsewhere = |dim: &Dim| match dim {
            Dim::Fixed(_) => false,
            Dim::Symbol(symbol) => symbol == batch,
            Dim::Computed(text) => text.contains(batch.as_str()),
        };
        let mut specs = self.inputs.iter().chain(&self.outputs);
        let fits = |spec: &TensorSpec| {
            let rest = spec.shape.get(1..).unwrap_or_default();
            !spec.shape.is_empty() && !rest.iter().any(elsewhere)
        };
        let outputs = |spec: &TensorSpec| !matches!(spec.shape.first(), Some(Dim::Fixed(_)));
        let along = self.inputs.iter().all(|spec| spec.shape.first().is_some_and(is_batch))
            && self.outputs.iter().all(outputs);
        let rows = inputs.first()?.shape().first()?;
        (along && specs.all(fits)).then(|| u64::try_from(*rows).ok()).flatten().filter(|rows| *rows > 0)
    }

    fn position(&self, name: &str) -> Option<usize> {
        let by_name = self.inputs.iter().position(|spec| spec.name == name);
        by_name.or_else(|| match (self.inputs.len(), name) {
            (1, "") => Some(0),
            _ => name.parse().ok().filter(|position| *position < self.inputs.len()),
        })
    }

    fn input_names(&self) -> String {
        let names: Vec<String> = self.inputs.iter().map(|spec| format!("`{}`", spec.name)).collect();
        names.join(", ")
    }
}

impl TensorSpec {
    fn check<'a>(&'a self, tensor: &Tensor, symbols: &mut HashMap<&'a str, usize>) -> Result<(), Error> {
        let before = symbols.clone();
        let fits = tensor.dtype() == self.dtype
            && tensor.shape().len() == self.shape.len()
            && self.shape.iter().zip(tensor.shape()).all(|(dim, size)| match dim {
                Dim::Fixed(expected) => expected == size,
                Dim::Symbol(symbol) => symbols.entry(symbol).or_insert(*size) == size,
                Dim::Computed(_) => true,
            });
        if fits {
            return Ok(());
        }
        // What other inputs have said of this one's axes.
        let bound = self.shape.iter().filter_map(|dim| match dim {
            Dim::Symbol(symbol) => before.get(symbol.as_str()).map(|size| format!("{symbol} = {size}")),
            Dim::Fixed(_) | Dim::Computed(_) => None,
        });
        let bound: Vec<String> = bound.collect();
        let expected =
            if bound.is_empty() { self.to_string() } else { format!("{self} with {}", bound.join(", ")) };
        Err(Error::InvalidInput {
            input: self.name.clone(),
            expected,
            given: format!("{} {:?}", tensor.dtype(), tensor.shape()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature() -> Signature {
        let batch = || Dim::Symbol("batch".to_owned());
        Signature {
            inputs: vec![
                TensorSpec { name: "x".to_owned(), dtype: Dtype::F32, shape: vec![batch(), Dim::Fixed(2)] },
                TensorSpec { name: "mask".to_owned(), dtype: Dtype::U8, shape: vec![batch()] },
            ],
            outputs: vec![],
        }
    }

    fn zeros(dtype: Dtype, shape: &[usize]) -> Tensor {
        let size = dtype.size() * shape.iter().product::<usize>();
        Tensor::new(dtype, shape.to_vec(), Bytes::from(vec![0; size])).unwrap()
    }

    fn refusal(given: Vec<(&str, Tensor)>) -> String {
        let given = given.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect();
        signature().order_inputs(given).unwrap_err().to_string()
    }

    #[test]
    fn inputs_come_out_in_the_models_order() {
        let given =
            vec![("mask".to_owned(), zeros(Dtype::U8, &[3])), ("x".to_owned(), zeros(Dtype::F32, &[3, 2]))];
        let ordered = signature().order_inputs(given).unwrap();
        assert_eq!(ordered[0].dtype(), Dtype::F32);
        assert_eq!(ordered[1].dtype(), Dtype::U8);
    }

    #[test]
    fn a_refusal_names_input_expected_and_given() {
        let mask = || ("mask", zeros(Dtype::U8, &[3]));
        assert_eq!(
            refusal(vec![mask(), ("x", zeros(Dtype::F32, &[3, 4]))]),
            "input `x`: expected f32 [batch, 2], given f32 [3, 4]"
        );
        assert_eq!(
            refusal(vec![mask(), ("x", zeros(Dtype::I64, &[3, 2]))]),
            "input `x`: expected f32 [batch, 2], given i64 [3, 2]"
        );
        assert_eq!(
            refusal(vec![("mask", zeros(Dtype::U8, &[4])), ("x", zeros(Dtype::F32, &[3, 2]))]),
            "input `mask`: expected u8 [batch] with batch = 3, given u8 [4]"
        );
        assert_eq!(refusal(vec![mask()]), "input `x` is missing; expected f32 [batch, 2]");
        assert_eq!(refusal(vec![mask(), mask()]), "input `mask` is given twice");
        assert_eq!(
            refusal(vec![("y", zeros(Dtype::U8, &[3]))]),
            "the model has no input `y`; it has `x`, `mask`"
        );
    }
}
