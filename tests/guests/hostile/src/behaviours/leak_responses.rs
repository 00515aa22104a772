//! Makes answers, with bodies and streams, that it never drops.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, OutgoingResponse, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    loop {
        let response = OutgoingResponse::new(Fields::new());
        let body = response.body().unwrap();
        std::mem::forget((body.write(), body, response));
    }
}
