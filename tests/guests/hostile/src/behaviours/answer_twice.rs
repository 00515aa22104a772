//! Gives a second answer with the handle of the first, before the first is whole.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, OutgoingResponse, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    // SAFETY: none. The host must notice that the handle is gone.
    let again = unsafe { ResponseOutparam::from_handle(out.handle()) };
    let _open = crate::begin(out, Fields::new());
    ResponseOutparam::set(again, Ok(OutgoingResponse::new(Fields::new())));
}
