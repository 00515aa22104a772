//! Devices and the models that run on them, shared by tenants that do not trust each other.
//!
//! This crate knows no Wasm, no HTTP and no tenant database: a tenant is a name here. Everything enters by one
//! door, [`Service`], which is shaped like messages (owned tensors in, owned tensors and a cost out, cancelled by
//! dropping the future), so that a device can live in this process or in a worker process of its own.
//!
//! ```text
//! service.rs     the door: inspect, load, infer, stats
//! tensor.rs      dtype, shape and bytes
//! model.rs       formats, signatures, and the check of a request against a signature
//! examine.rs     what a model may need, and who opens it first
//! backend/       what turns model bytes into a graph and runs it (tract)
//! device/        what the machine has
//! quota.rs       the device's memory, as it is planned
//! residency.rs   which graphs are in memory, and who holds them there
//! sched/lane.rs  whose turn it is on a device
//! ```

mod backend;
mod device;
mod error;
mod examine;
mod model;
mod quota;
mod residency;
mod sched;
mod service;
mod tensor;

pub use device::{DeviceKind, DeviceStats};
pub use error::Error;
pub use examine::{ENGINE, Examiner, InProcess, ModelLimits, Report, examine};
pub use model::{Dim, Format, ModelBytes, ModelSource, Signature, TensorSpec};
pub use residency::{Lease, ResidentGraph};
pub use sched::lane::Class;
pub use service::{Cost, DeviceConfig, Inference, Job, Service, Stats};
pub use tensor::{Dtype, Tensor};
