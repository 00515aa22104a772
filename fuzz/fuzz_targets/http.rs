//! Any request of the control routes gets an answer that is not the server's own failure.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use weir::fuzzing::Routes;

static ROUTES: LazyLock<Routes> = LazyLock::new(Routes::new);

fuzz_target!(|given: (u8, &str, &str, &[u8])| {
    let (route, name, kind, body) = given;
    let status = ROUTES.ask(route, name, kind, body);
    assert!(status < 500, "{status}");
});
