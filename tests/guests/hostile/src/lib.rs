//! Does harm as its path says: one file of `behaviours` for each kind, found by build.rs.

use weir_sdk::bindings::exports::wasi::http::incoming_handler::Guest;
use weir_sdk::bindings::wasi::http::outgoing_handler;
use weir_sdk::bindings::wasi::http::types::{
    Fields, IncomingRequest, OutgoingBody, OutgoingRequest, OutgoingResponse, ResponseOutparam, Scheme,
};
use weir_sdk::bindings::wasi::io::streams::OutputStream;
use weir_sdk::bindings::wasi::nn::graph::load_by_name;
use weir_sdk::bindings::wasi::nn::tensor::Tensor;

type Run = fn(IncomingRequest, ResponseOutparam);

include!(concat!(env!("OUT_DIR"), "/behaviours.rs"));

struct Hostile;

weir_sdk::bindings::export!(Hostile with_types_in weir_sdk::bindings);

impl Guest for Hostile {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let path = request.path_with_query().unwrap_or_default();
        let name = path.split('?').next().unwrap_or_default().trim_start_matches('/');
        match behaviour(name) {
            Some(run) => run(request, out),
            None => answer(out, &format!("no behaviour {name}")),
        }
    }
}

/// A whole answer of status 200.
fn answer(out: ResponseOutparam, text: &str) {
    let (body, stream) = begin(out, Fields::new());
    for piece in text.as_bytes().chunks(4096) {
        if stream.blocking_write_and_flush(piece).is_err() {
            return;
        }
    }
    drop(stream);
    let _ = OutgoingBody::finish(body, None);
}

/// The head of an answer, and its body to be written.
fn begin(out: ResponseOutparam, headers: Fields) -> (OutgoingBody, OutputStream) {
    let response = OutgoingResponse::new(headers);
    let body = response.body().unwrap();
    ResponseOutparam::set(out, Ok(response));
    let stream = body.write().unwrap();
    (body, stream)
}

/// A value of the request's query.
fn query(request: &IncomingRequest, name: &str) -> Option<String> {
    let path = request.path_with_query()?;
    let (_, query) = path.split_once('?')?;
    query
        .split('&')
        .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))
        .map(|(_, value)| value.to_owned())
}

/// What `fill` writes and `seek` looks for.
const PATTERN: u64 = 0x57A1_C0DE_5EC2_E75A;

/// How many words of this sandbox's memory, from its start to its end, are the pattern. None of the guest's own data
/// is: the pattern is part of an instruction.
fn count_pattern() -> usize {
    let end = core::arch::wasm32::memory_size::<0>() << 16;
    // SAFETY: this only reads what is in memory.
    let is_there = |address: &usize| unsafe {
        std::ptr::with_exposed_provenance::<u64>(*address).read_volatile() == PATTERN
    };
    (8..end).step_by(8).filter(is_there).count()
}

/// Runs the model `double` on one input, and tells what came of it.
fn compute(name: &str, tensor: Tensor) -> String {
    let session = load_by_name("double").and_then(|graph| graph.init_execution_context());
    match session.and_then(|session| session.compute(vec![(name.to_owned(), tensor)])) {
        Ok(outputs) => format!("{} outputs", outputs.len()),
        Err(error) => format!("{:?}", error.code()),
    }
}

/// Sends a request, and tells what came of it: `status 200`, `status 302 to http://…`, or the error.
fn fetch(scheme: &str, authority: &str, path: &str) -> String {
    let request = OutgoingRequest::new(Fields::new());
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    let said = request.set_scheme(Some(&scheme)).and(request.set_authority(Some(authority)));
    if said.and(request.set_path_with_query(Some(path))).is_err() {
        return "not an address".to_owned();
    }
    let answer = match outgoing_handler::handle(request, None) {
        Ok(answer) => answer,
        Err(error) => return format!("{error:?}"),
    };
    answer.subscribe().block();
    match answer.get() {
        Some(Ok(Ok(response))) => {
            let to = response.headers().get("location").into_iter().next();
            let to = to.map(|to| format!(" to {}", String::from_utf8_lossy(&to))).unwrap_or_default();
            format!("status {}{to}", response.status())
        }
        Some(Ok(Err(error))) => format!("{error:?}"),
        _ => "nothing".to_owned(),
    }
}

/// The host's own functions, to be called with what no toolchain would give them.
mod raw {
    #[link(wasm_import_module = "wasi:nn/graph@0.2.0-rc-2024-10-28")]
    unsafe extern "C" {
        #[link_name = "load"]
        pub fn load(builders: usize, count: usize, encoding: i32, target: i32, result: usize);
        #[link_name = "load-by-name"]
        pub fn load_by_name(name: usize, length: usize, result: usize);
    }

    #[link(wasm_import_module = "wasi:http/types@0.2.12")]
    unsafe extern "C" {
        #[link_name = "[static]fields.from-list"]
        pub fn fields_from_list(entries: usize, count: usize, result: usize);
    }

    #[link(wasm_import_module = "wasi:io/poll@0.2.12")]
    unsafe extern "C" {
        #[link_name = "poll"]
        pub fn poll(pollables: usize, count: usize, result: usize);
    }
}
