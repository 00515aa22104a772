//! Sends requests to addresses that must not be reached, in all the ways to write them.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

use crate::fetch;

pub fn run(request: IncomingRequest, out: ResponseOutparam) {
    let port = crate::query(&request, "port").unwrap_or_default();
    let hosts = [
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "0.0.0.0",
        "[::]",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "[fe80::1]",
        "[fd00::1]",
        "localhost",
        "localhost.",
        "LOCALHOST",
    ];
    let told = hosts.map(|host| fetch("http", &format!("{host}:{port}"), "/"));
    let went = told.iter().filter(|told| told.starts_with("status")).count();
    crate::answer(out, &format!("{went} went out; {}", told.join(", ")));
}
