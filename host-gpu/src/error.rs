//! Why the door refused or failed. Errors are cheap to clone, because one failed load answers many waiters.

use std::any::Any;
use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinError;

use crate::tensor::Dtype;

/// An error of the door. The text is meant for the tenant: it names what was asked, what was expected, and no
/// detail of the host. Errors cross the pipe from the process that examines models.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
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
    /// A model needs more memory than models may: its tensors in the file, or what its plan holds at one time.
    #[error("the model needs {needed} bytes at one time; the most here is {most}")]
    ModelMemory { needed: u64, most: u64 },
    /// One operator of a model does more than an operator may, and could not be stopped while it does.
    #[error("operator `{operator}` needs {needed} multiply-adds; the most here is {most}")]
    OperatorCost { operator: String, needed: u64, most: u64 },
    /// How much an operator writes cannot be known before it writes it.
    #[error(
        "how much operator `{operator}` writes cannot be known before it runs, so the model cannot run here"
    )]
    Unbounded { operator: String },
    /// The process that opened the model died, or ran out of time or memory.
    #[error("preparing the model failed: {0}")]
    Died(String),
    /// A model format that no engine here reads.
    #[error("model format `{0}` is not supported: use `onnx`")]
    UnsupportedFormat(String),
    /// A model's input or output has an element type that no tensor here can carry.
    #[error("{what} has element type {dtype}, which is not supported")]
    UnsupportedDtype { what: String, dtype: String },
    /// A device was asked for that is not there to be used.
    #[error("no GPU on this machine: ask for `cpu`, or run where there is a GPU")]
    NoGpu,
    /// A model that runs on the CPU only.
    #[error("the model cannot run on a GPU, only on `cpu`: {0}")]
    NotOnGpu(String),
    /// The device has stopped working.
    #[error("device `{device}` has failed, and does not work until the server is started again")]
    DeviceFailed { device: String },
    /// The device's queue is full.
    #[error("device `{device}` has {queued} jobs waiting, the most it may have")]
    QueueFull { device: String, queued: usize },
    /// The tenant's part of the device's queue is full.
    #[error("`{tenant}` has {queued} jobs waiting for device `{device}`, the most it may have")]
    TenantQueueFull { device: String, tenant: String, queued: usize },
    /// The job waited for a lane as long as it was to.
    #[error("no lane was free for the job in {}", millis(*.waited))]
    QueueTimeout { waited: Duration },
    /// The deadline is sooner than the job can be done, as its graph's runs were seen to take.
    #[error("the job takes at least {}, and its deadline is in {}", millis(*.needed), millis(*.left))]
    DeadlineTooSoon { needed: Duration, left: Duration },
    /// The deadline passed before the job was done.
    #[error("the deadline passed while the job was {0}")]
    DeadlineExceeded(Cow<'static, str>),
    /// The device's memory, as models and jobs have planned it, is in use: `requested` more bytes do not fit.
    #[error("{requested} bytes are needed; of the device's {limit}, {used} are in use")]
    DeviceMemory { requested: u64, used: u64, limit: u64 },
    /// The tenant's quota of the device's memory is used up: `requested` more bytes do not fit.
    #[error(
        "{requested} bytes are needed; of the {limit} that `{tenant}` may use on the device, {used} are in use"
    )]
    TenantMemory { tenant: String, requested: u64, used: u64, limit: u64 },
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
    /// Whether this is about what a model may need, and not about what is wrong with it.
    pub(crate) fn is_limit(&self) -> bool {
        matches!(self, Self::ModelMemory { .. } | Self::OperatorCost { .. } | Self::Unbounded { .. })
    }

    pub(crate) fn from_join(error: JoinError) -> Self {
        match error.try_into_panic() {
            Ok(panic) => Self::from_panic(&*panic),
            Err(_) => Self::Cancelled,
        }
    }

    /// What a panic inside the engine becomes: an error of that job, with the panic's own words.
    pub(crate) fn from_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        tracing::warn!(text, "the engine panicked");
        Self::EnginePanic(text.chars().take(200).collect())
    }

    pub(crate) fn wrong_length(dtype: Dtype, shape: &[usize], expected: usize, given: usize) -> Self {
        Self::InvalidTensor(format!(
            "a {dtype} tensor of shape {shape:?} has {expected} bytes, given {given}"
        ))
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// Nanoseconds, up to as many as a `u64` holds: 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
