//! Follows a redirect of a host that it may ask, to one that it may not.

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

use crate::fetch;

pub fn run(request: IncomingRequest, out: ResponseOutparam) {
    let allowed = crate::query(&request, "allowed").unwrap_or_default();
    let mut next = format!("http://{allowed}/");
    let mut told = vec![];
    for _ in 0..4 {
        let Some((host, path)) = next.strip_prefix("http://").and_then(|url| url.split_once('/')) else { break };
        let said = fetch("http", host, &format!("/{path}"));
        next = said.split_once(" to ").map(|(_, to)| to.to_owned()).unwrap_or_default();
        told.push(said);
    }
    crate::answer(out, &told.join("; "));
}
