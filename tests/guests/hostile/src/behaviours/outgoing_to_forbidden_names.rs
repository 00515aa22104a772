//! Sends requests to names that its configuration does not have.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

use crate::fetch;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let names = ["example.com", "localhost", "metadata.google.internal", "127.0.0.2.example.com", "allowed@127.0.0.1", ""];
    let told = names.map(|name| fetch("http", name, "/"));
    let went = told.iter().filter(|told| told.starts_with("status")).count();
    crate::answer(out, &format!("{went} went out; {}", told.join(", ")));
}
