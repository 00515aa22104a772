//! Allocates and touches memory until there is no more.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    let mut held: Vec<Vec<u8>> = vec![];
    loop {
        held.push(vec![1; 1 << 20]);
    }
}
