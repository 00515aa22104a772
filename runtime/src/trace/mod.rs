//! Traces: which trace a call belongs to, and what is told of it when it has ended.
//!
//! ```text
//! context.rs    W3C Trace Context: in from clients, out to guests and to whom they ask
//! ids.rs        random ids
//! tracer.rs     which traces are kept
//! recording.rs  what is collected of a call while it runs: nothing, where its trace is not kept
//! spans.rs      the spans of it, made off the call's path
//! current.rs    which call a line of the server's log is about
//! names.rs      all names
//! ```
//!
//! A call's usage record does not depend on any of this: it is written whether or not a trace is kept.

pub mod context;
pub mod current;
mod ids;
pub mod names;
pub mod recording;
pub mod spans;
mod tracer;
pub mod value;

pub use context::{Context, Link};
pub use ids::number as random_number;
pub use recording::{CallTrace, Recording};
pub use tracer::Tracer;
