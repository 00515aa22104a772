//! Asks for models by names of a megabyte, and keeps the errors.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::graph::load_by_name;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let name = "x".repeat(1 << 20);
    let errors: Vec<_> = (0..100).filter_map(|_| load_by_name(&name).err()).collect();
    let longest = errors.iter().map(|error| error.data().len()).max();
    crate::answer(out, &format!("{} errors of at most a thousand bytes: {:?}", errors.len(), longest <= Some(1000)));
}
