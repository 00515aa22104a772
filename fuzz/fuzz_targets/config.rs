//! A function's configuration that is accepted says the same when it is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| weir::fuzzing::config(text));
