//! Spends its time in single instructions that are long: it fills 16 MiB again and again.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, _: ResponseOutparam) {
    let mut block = vec![0_u8; 16 << 20];
    let mut byte = 0_u8;
    loop {
        byte = byte.wrapping_add(1);
        std::hint::black_box(&mut block).fill(byte);
    }
}
