//! Returns without an answer.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {}
