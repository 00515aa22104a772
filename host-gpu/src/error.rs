//! Why the door refused or failed. Errors are cheap to clone, because one failed load answers many waiters.

use crate::tensor::Dtype;

/// An error of the door. The text is meant for the tenant: it names what was asked, what was expected, and no
/// detail of the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Shape, dtype and bytes of a tensor do not fit each other.
    #[error("{0}")]
    InvalidTensor(String),
    /// An input is not what the model's signature asks for.
    #[error("input `{input}`: expected {expected}, given {given}")]
    InvalidInput { input: String, expected: String, given: String },
    /// A name that the model's signature does not have, or one given twice.
    #[error("{0}")]
    InvalidInputs(String),
    /// The bytes are not a model of the format that they were said to be, or the engine cannot prepare it.
    #[error("the model cannot be loaded: {0}")]
    InvalidModel(String),
    /// A model format that no engine here reads.
    #[error("model format `{0}` is not supported: use `onnx`")]
    UnsupportedFormat(String),
    /// A model's input or output has an element type that no tensor here can carry.
    #[error("{what} has element type {dtype}, which is not supported")]
    UnsupportedDtype { what: String, dtype: String },
    /// A device was asked for that the machine does not have.
    #[error("no GPU on this machine: ask for `cpu`, or run where there is a GPU")]
    NoGpu,
    /// The device's queue is full.
    #[error("device `{device}` has {queued} jobs waiting, the most it may have")]
    QueueFull { device: String, queued: usize },
    /// The deadline passed before the job was done.
    #[error("the deadline passed while the job was {0}")]
    DeadlineExceeded(&'static str),
    /// The caller has gone.
    #[error("the caller has gone")]
    Cancelled,
    /// The engine failed while it ran the graph.
    #[error("the model failed: {0}")]
    Engine(String),
    /// The engine panicked. The job ended; nothing else did.
    #[error("the engine failed inside: {0}")]
    EnginePanic(String),
}

impl Error {
    pub(crate) fn wrong_length(dtype: Dtype, shape: &[usize], expected: usize, given: usize) -> Self {
        Self::InvalidTensor(format!(
            "a {dtype} tensor of shape {shape:?} has {expected} bytes, given {given}"
        ))
    }
}
