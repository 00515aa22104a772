//! Moves its request's body to its answer, as much at once as a number can say.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, OutgoingBody, ResponseOutparam};

pub fn run(request: IncomingRequest, out: ResponseOutparam) {
    let question = request.consume().unwrap();
    let from = question.stream().unwrap();
    let (body, to) = crate::begin(out, Fields::new());
    while to.blocking_splice(&from, u64::MAX).is_ok() {}
    let _ = to.blocking_write_and_flush(b" and its end");
    drop(to);
    let _ = OutgoingBody::finish(body, None);
}
