//! Opens requests to a host that it may ask and waits for none of them.

use weir_sdk::bindings::wasi::http::outgoing_handler::handle;
use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, OutgoingRequest, ResponseOutparam, Scheme};

pub fn run(request: IncomingRequest, out: ResponseOutparam) {
    let allowed = crate::query(&request, "allowed").unwrap_or_default();
    let mut under_way = vec![];
    for _ in 0..100 {
        let request = OutgoingRequest::new(Fields::new());
        request.set_scheme(Some(&Scheme::Http)).unwrap();
        request.set_authority(Some(&allowed)).unwrap();
        request.set_path_with_query(Some("/")).unwrap();
        match handle(request, None) {
            Ok(answer) => under_way.push(answer),
            Err(error) => return crate::answer(out, &format!("{} under way, then {error:?}", under_way.len())),
        }
    }
    let mut refused = 0;
    for answer in &under_way {
        answer.subscribe().block();
        refused += usize::from(matches!(answer.get(), Some(Ok(Err(_)))));
    }
    crate::answer(out, &format!("{} answered", under_way.len() - refused));
}
