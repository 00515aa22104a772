//! The wall between tenants: what a guest is compiled to, what it may touch, and how much of it.
//!
//! ```text
//! engine.rs     the wasmtime engine and linker; what a component must export and may import
//! artifact.rs   precompiled code on disk, and its mapping into memory
//! store.rs      one call's store: everything a guest can reach, with its limits
//! memory.rs     what sandboxes cost in memory, their own and the host's
//! meter.rs      how long a guest computes
//! met.rs        the limits that a call has met
//! egress/       outgoing requests
//! wasi_nn.rs    models and tensors, as guests see them
//! logs.rs       where stdout and stderr go
//! ```

pub mod artifact;
pub mod egress;
pub mod engine;
pub mod logs;
pub mod memory;
pub mod met;
pub mod meter;
pub mod store;
pub mod wasi_nn;
