//! Write Weir functions in Rust.
//!
//! A function answers HTTP requests and may run the models that its deployment names. It is a plain Rust
//! library, built for `wasm32-wasip2` with `crate-type = ["cdylib"]`:
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use weir_sdk::{Error, Model, Request, Response, Tensor, function};
//!
//! #[derive(Deserialize)]
//! struct Input {
//!     x: Vec<f32>,
//! }
//!
//! #[derive(Serialize)]
//! struct Output {
//!     y: Vec<f32>,
//! }
//!
//! #[function]
//! fn handle(request: Request) -> Result<Response, Error> {
//!     let input: Input = request.json()?;
//!     let model = Model::open("name")?;
//!     let outputs = model.run([("x", Tensor::new(&[1, 4], &input.x)?)])?;
//!     let y = outputs.get("y")?; // the data stays on the host until asked for
//!     Response::json(&Output { y: y.to_vec::<f32>()? })
//! }
//! # fn main() {}
//! ```
//!
//! A handler may as well be an `async fn`; a [`Router`] has one for each path and method. Everything compiles off Wasm too, where
//! [`testing`] stands in for the host: functions are tested with plain `cargo test`.
//!
//! | file | what |
//! | --- | --- |
//! | `request.rs`, `response.rs`, `events.rs` | HTTP in and out, whole or part by part |
//! | `router.rs` | handlers by path and method |
//! | `fetch.rs` | requests of the function's own |
//! | `error.rs` | what goes wrong, and the answer it becomes |
//! | `model.rs`, `tensor.rs`, `element.rs` | models, their inputs and outputs |
//! | `typed.rs` | inputs and outputs as structs |
//! | `image.rs`, `audio.rs` | pictures and sound as tensors' elements (features `image`, `audio`) |
//! | `log.rs`, `config.rs`, `sleep.rs` | log lines, the function's own configuration, waiting |
//! | `serve.rs` | the one place where a request of the host becomes a call of the tenant's function |
//! | `testing.rs` | a host for tests |
//! | `host/` | what is asked of the host: in a sandbox, in tests |
//! | `bindings.rs` | the WIT world as Rust |
//!
//! The component that comes out is standard (`wasi:http`, `wasi:nn`).

pub mod bindings;
pub mod log;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

#[cfg(feature = "audio")]
pub mod audio;
#[cfg(feature = "image")]
pub mod image;

mod config;
mod element;
mod error;
mod events;
mod fetch;
mod host;
mod model;
mod request;
mod response;
mod router;
mod serve;
mod sleep;
mod tensor;
mod typed;

pub use config::config;
pub use element::Element;
pub use error::Error;
pub use events::Event;
pub use fetch::{Fetch, Fetched, Fetching};
pub use half::{bf16, f16};
pub use model::{Model, Outputs};
pub use request::{Chunks, Request};
pub use response::Response;
pub use router::Router;
pub use serde_json::{self, json};
pub use serve::Answer;
pub use sleep::sleep;
pub use tensor::{Dtype, Tensor};
pub use typed::{Array, FromOutputs, FromTensor, Inputs, ToTensor};
pub use weir_sdk_macros::{Inputs, Outputs, function};

/// What `#[function]` writes: the component's export, which hands each request to the named function.
#[doc(hidden)]
#[macro_export]
macro_rules! __function {
    ($handler:ident) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Exported;

            impl $crate::bindings::exports::wasi::http::incoming_handler::Guest for Exported {
                fn handle(
                    request: $crate::bindings::wasi::http::types::IncomingRequest,
                    out: $crate::bindings::wasi::http::types::ResponseOutparam,
                ) {
                    $crate::__private::serve(request, out, $handler)
                }
            }

    $crate::bindings::export!(Exported with_types_in $crate::bindings);
        };

        #[cfg(not(target_arch = "wasm32"))]
        const _: fn() = || $crate::__private::check($handler);
    };
}

/// For the code that `#[function]` writes.
#[doc(hidden)]
pub mod __private {
    pub use crate::serve::check;
    #[cfg(target_arch = "wasm32")]
    pub use crate::serve::serve;
    pub use crate::typed::{input, output};
}

// What the derives write names this crate, in its own tests too.
#[cfg(test)]
extern crate self as weir_sdk;
