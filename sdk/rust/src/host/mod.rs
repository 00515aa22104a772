//! What the SDK asks of its host, in one place: [`wasi`] in a sandbox, [`fake`] in `cargo test`. Both have the same types and
//! functions, so that all else is the same code in both.
//!
//! | name | what |
//! | --- | --- |
//! | `Tensor`, `Graph` | data and models that the host holds |
//! | `Incoming`, `Body` | a request whose body is not asked for yet; a body that comes in part by part |
//! | `fetch`, `Fetching` | a request of the function's own, and its answer that is on its way |
//! | `Timer` | a moment to come |
//! | `config`, `log` | the function's configuration and its log |
//! | `block_on` | runs a future to its end, waiting in the host while nothing is ready |

#[cfg(target_arch = "wasm32")]
mod wasi;
#[cfg(target_arch = "wasm32")]
pub use wasi::*;

#[cfg(not(target_arch = "wasm32"))]
pub mod fake;
#[cfg(not(target_arch = "wasm32"))]
pub use fake::*;

use crate::bindings::wasi::nn::errors::ErrorCode;

/// Why the host could not do something with a model or a tensor: its code, and what it says of it.
pub type NnFailure = (ErrorCode, String);

/// The head of an answer to a request of the function's own, and its body.
pub type Answered = (u16, Vec<(String, Vec<u8>)>, Body);
