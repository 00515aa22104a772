//! Waits for an hour.

use std::time::Duration;

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    std::thread::sleep(Duration::from_secs(3600));
}
