//! Devices and the models that run on them, shared by tenants that do not trust each other.
//!
//! This crate knows no Wasm, no HTTP and no tenant database: a tenant is a name here. Everything enters by one
//! door, [`Service`], which is shaped like messages (owned tensors in, owned tensors and a cost out, cancelled by
//! dropping the future), so that a device can live in this process or in a worker process of its own.
//!
//! ```text
//! service.rs     the door: inspect, load, infer, stats
//! ride.rs        requests that are run as one batch
//! job.rs         one run, between its operators
//! tensor.rs      dtype, shape and bytes
//! model.rs       formats, signatures, and the check of a request against a signature
//! examine.rs     what a model may need, and who opens it first
//! backend/       what turns model bytes into a graph and runs it (tract)
//! device/        what the machine has: its cores, and a GPU (cuda.rs, and guard.rs: what may run on it)
//! quota.rs       the ledger of a device's memory, as it is planned
//! tab.rs         what requests have taken, as those write it down who gave it
//! residency.rs   which graphs are in memory, who holds them there, and which make room
//! sched/         whose turn it is: fair.rs (pure: who is next), batch.rs (pure: who rides along), times.rs (pure: how
//!                long runs take), queue.rs (pure: who may wait), quarantine.rs (pure: who rides with nobody for a
//!                while), lane.rs (those who wait and run)
//! simulate.rs    the same rules over a trace of arrivals, without a device
//! ```

mod backend;
mod device;
mod error;
mod examine;
mod job;
mod model;
mod quota;
mod residency;
mod ride;
mod sched;
mod service;
pub mod simulate;
mod tab;
mod tensor;

pub use device::{DeviceKind, DeviceStats, DriverMemory, GpuConfig, GpuFolders, GpuPart, gpu_parts};
pub use error::Error;
pub use examine::{ENGINE, Examiner, InProcess, ModelLimits, Report, examine};
pub use model::{Dim, Format, ModelBytes, ModelPolicy, ModelSource, Signature, TensorSpec};
pub use quota::{AccountStats, Kind, LedgerStats, SYSTEM};
pub use residency::{Eviction, Held, Keep, ResidentGraph};
pub use sched::Class;
pub use sched::batch::Batching;
pub use sched::fair::Sharing;
pub use sched::lane::TenantShare;
pub use service::{Cost, DeviceConfig, Inference, Job, Lease, Service, Stats};
pub use tab::{Integral, Mark, Tab, Used};
pub use tensor::{Dtype, Tensor};
