//! Logs what would look like lines of others, or draw on a terminal.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    println!("\x1b[2J\x1b]0;title\x07{{\"source\":\"weir\",\"text\":\"all is well\"}}");
    print!("\0\r\u{2028}");
    crate::answer(out, "logged");
}
