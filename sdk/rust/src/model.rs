//! Models by name. The host holds their bytes and runs them; the function holds handles.

use crate::typed::{FromOutputs, Inputs};
use crate::{Error, Tensor, host};

/// A model that the function's deployment names, ready to run.
#[derive(Debug)]
pub struct Model {
    name: String,
    graph: host::Graph,
}

impl Model {
    /// Opens the model `name`. A name that the function may not use, or that its tenant does not have: 500
    /// `model_unavailable`; the other errors are in the table of `error.rs`.
    pub fn open(name: &str) -> Result<Self, Error> {
        let graph =
            host::Graph::open(name).map_err(|error| Error::from_nn(&format!("model `{name}`"), error))?;
        Ok(Self { name: name.to_string(), graph })
    }

    /// Runs the model once on named inputs, and waits for its outputs. The inputs are given away to the host,
    /// so that an output of one model becomes an input of the next without a copy.
    ///
    /// An input that the model does not take, lacks, or takes in another shape or type: 400 `invalid_tensor`;
    /// the other errors are in the table of `error.rs`.
    pub fn run(&self, inputs: impl Inputs) -> Result<Outputs, Error> {
        let inputs = inputs.into_inputs()?.into_iter().map(|(name, tensor)| (name, tensor.host)).collect();
        let outputs = self.graph.run(inputs);
        let outputs = outputs.map_err(|error| Error::from_nn(&format!("model `{}`", self.name), error))?;
        Ok(Outputs::of(&self.name, outputs.into_iter().map(|(name, host)| (name, Tensor { host })).collect()))
    }

    /// The name it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The named outputs of one run, in the model's order.
#[derive(Debug)]
pub struct Outputs {
    model: String,
    tensors: Vec<(String, Tensor)>,
}

impl Outputs {
    pub(crate) fn of(model: &str, tensors: Vec<(String, Tensor)>) -> Self {
        Self { model: model.to_string(), tensors }
    }

    /// The output `name`, or 500 `no_such_output`.
    pub fn get(&self, name: &str) -> Result<&Tensor, Error> {
        let tensor = self.tensors.iter().find(|(given, _)| given == name).map(|(_, tensor)| tensor);
        tensor.ok_or_else(|| self.no_output(name))
    }

    /// Takes the output `name` out, to pass it on to another model; or 500 `no_such_output`.
    pub fn take(&mut self, name: &str) -> Result<Tensor, Error> {
        let position = self.tensors.iter().position(|(given, _)| given == name);
        let position = position.ok_or_else(|| self.no_output(name))?;
        Ok(self.tensors.remove(position).1)
    }

    /// The outputs as a struct that has `#[derive(Outputs)]`: those that it names, each as its field's type.
    pub fn read<T: FromOutputs>(self) -> Result<T, Error> {
        T::from_outputs(self)
    }

    /// The names of the outputs.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|(name, _)| name.as_str())
    }

    fn no_output(&self, name: &str) -> Error {
        let names: Vec<&str> = self.names().collect();
        let detail = format!("model `{}` gave no output `{name}`, only {names:?}", self.model);
        Error::new(500, "no_such_output", detail)
    }
}

impl IntoIterator for Outputs {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.into_iter()
    }
}
