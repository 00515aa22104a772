//! Sends requests to a host that it may ask, without end.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

use crate::fetch;

pub fn run(request: IncomingRequest, out: ResponseOutparam) {
    let allowed = crate::query(&request, "allowed").unwrap_or_default();
    let mut sent = 0;
    for _ in 0..1000 {
        let said = fetch("http", &allowed, "/");
        if !said.starts_with("status") {
            return crate::answer(out, &format!("sent {sent}, then {said}"));
        }
        sent += 1;
    }
    crate::answer(out, &format!("sent {sent}"));
}
