//! An artifact that this server did not make is never mapped.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use weir::fuzzing::Artifact;

static ARTIFACT: LazyLock<Artifact> = LazyLock::new(Artifact::new);

fuzz_target!(|given: (Vec<(u16, u8)>, Vec<u8>, bool)| {
    let (changes, mac, cut) = given;
    ARTIFACT.change(&changes, &mac, cut);
});
