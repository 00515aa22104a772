//! Looks for files.

use std::fs;

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let mut had = vec![];
    for path in ["/", ".", "..", "/etc/passwd", "/proc/self/environ", "/dev/zero", "etc/passwd", "\0", ""] {
        if fs::read_dir(path).is_ok() || fs::read(path).is_ok() || fs::metadata(path).is_ok() {
            had.push(path);
        }
    }
    for path in ["/tmp/x", "x", "../x"] {
        if fs::write(path, "x").is_ok() || fs::create_dir(path).is_ok() {
            had.push(path);
        }
    }
    crate::answer(out, &format!("had {had:?}"));
}
