//! Whatever a problem's sentence has in it, its body is JSON of the same status.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|given: (u8, String)| weir::fuzzing::problem(given.0, given.1));
