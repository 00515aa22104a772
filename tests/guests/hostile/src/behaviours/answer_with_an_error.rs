//! Answers with an error of its own choice, and a text in it that is not text for a header.

use weir_sdk::bindings::wasi::http::types::{ErrorCode, IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    ResponseOutparam::set(out, Err(ErrorCode::InternalError(Some("a\r\nset-cookie: b\0".repeat(1000)))));
}
