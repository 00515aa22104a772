//! A tensor is made only of as many bytes as its type and shape say, for any of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::fuzzing;

fuzz_target!(|given: (u8, Vec<u32>, Vec<u8>, bool)| {
    let (ty, shape, data, wants_bool) = given;
    if let Ok((size, elements)) = fuzzing::tensor(ty, &shape, &data, wants_bool) {
        assert_eq!(Some(data.len()), elements.checked_mul(size), "{shape:?}");
    }
});
