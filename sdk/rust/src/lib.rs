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
//! | file | what |
//! | --- | --- |
//! | `request.rs`, `response.rs` | HTTP in and out |
//! | `error.rs` | what goes wrong, and the answer it becomes |
//! | `model.rs`, `tensor.rs`, `element.rs` | models, their inputs and outputs |
//! | `log.rs`, `config.rs` | log lines, and the function's own configuration |
//! | `serve.rs` | the one place where a request of the host becomes a call of the tenant's function |
//! | `bindings.rs` | the WIT world as Rust |
//!
//! The component that comes out is standard (`wasi:http`, `wasi:nn`). Off Wasm, everything compiles, and all
//! but [`Model`] and [`Tensor`] works, so a function's own logic can be tested with plain `cargo test`.

pub mod bindings;
pub mod log;

mod config;
mod element;
mod error;
mod model;
mod request;
mod response;
mod serve;
mod tensor;

pub use config::config;
pub use element::Element;
pub use error::Error;
pub use half::{bf16, f16};
pub use model::{Model, Outputs};
pub use request::{Chunks, Request};
pub use response::Response;
pub use serde_json::{self, json};
pub use tensor::{Dtype, Tensor};
pub use weir_sdk_macros::function;

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
    pub use crate::serve::{check, serve};
}
