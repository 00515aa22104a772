//! Asks for models of others, by every kind of name.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};
use weir_sdk::bindings::wasi::nn::errors::ErrorCode;
use weir_sdk::bindings::wasi::nn::graph::load_by_name;

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let long = "x".repeat(1 << 20);
    let names = [
        "other",
        "default/double",
        "other/double",
        "../double",
        "./double",
        "double/",
        "double\0",
        "double\n",
        "Double",
        "%64ouble",
        "/etc/passwd",
        "file:///etc/passwd",
        "",
        &long,
    ];
    let refused = |name: &&&str| {
        matches!(load_by_name(name), Err(error) if [ErrorCode::Security, ErrorCode::NotFound].contains(&error.code()))
    };
    let refused = names.iter().filter(refused).count();
    let own = load_by_name("double").is_ok();
    crate::answer(out, &format!("refused {refused} of {}, its own: {own}", names.len()));
}
