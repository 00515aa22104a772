//! Opens its model again and again and drops nothing.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::graph::load_by_name;

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    loop {
        let graph = load_by_name("double").unwrap();
        std::mem::forget((graph.init_execution_context(), graph));
    }
}
