//! Goes to its limits, or misbehaves, as its path says.

use std::fmt::Write;
use std::time::Duration;

use weir_sdk::bindings::exports::wasi::http::incoming_handler::Guest;
use weir_sdk::bindings::wasi::clocks::monotonic_clock;
use weir_sdk::bindings::wasi::http::outgoing_handler;
use weir_sdk::bindings::wasi::http::types::{
    Fields, IncomingRequest, OutgoingBody, OutgoingRequest, OutgoingResponse, ResponseOutparam, Scheme,
};
use weir_sdk::bindings::wasi::nn::tensor::{Tensor, TensorType};

struct Trouble;

weir_sdk::bindings::export!(Trouble with_types_in weir_sdk::bindings);

impl Guest for Trouble {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let path = request.path_with_query().unwrap_or_default();
        let (path, number) = path.split_once('=').unwrap_or((&path, "0"));
        let number: usize = number.parse().unwrap_or(0);
        match path {
            "/trap" => std::process::abort(),
            "/exit" => std::process::exit(3),
            "/silent" => {}
            "/spin" =>
            {
                #[allow(clippy::empty_loop)]
                loop {}
            }
            "/sleep" => std::thread::sleep(Duration::from_secs(3600)),
            "/memory" => {
                let mut held: Vec<Vec<u8>> = vec![];
                loop {
                    held.push(vec![1; 1 << 20]);
                }
            }
            "/flood" => {
                for line in 0..100_000 {
                    println!("line {line}");
                }
                answer(out, b"flooded");
            }
            "/endless" => {
                let response = OutgoingResponse::new(Fields::new());
                let Ok(body) = response.body() else { return };
                ResponseOutparam::set(out, Ok(response));
                let Ok(stream) = body.write() else { return };
                while stream.blocking_write_and_flush(&[b'x'; 4096]).is_ok() {}
            }
            "/half" => {
                let response = OutgoingResponse::new(Fields::new());
                let Ok(body) = response.body() else { return };
                ResponseOutparam::set(out, Ok(response));
                if let Ok(stream) = body.write() {
                    let _ = stream.blocking_write_and_flush(b"half");
                }
                std::process::abort();
            }
            // So much, and no more: the number is after the `=`.
            "/pages" => {
                let grown = core::arch::wasm32::memory_grow::<0>(number) != usize::MAX;
                answer(out, if grown { b"grown" } else { b"refused" });
            }
            "/tensor" => {
                let data = vec![0; number];
                // Not held while it answers: an answer takes some of the host too.
                drop(Tensor::new(&[number as u32], TensorType::U8, &data));
                answer(out, b"made");
            }
            "/handles" => {
                let _held: Vec<_> = (0..number).map(|_| monotonic_clock::subscribe_duration(1)).collect();
                answer(out, b"held");
            }
            "/headers" => {
                let headers = Fields::new();
                let _ = headers.append("x-long", &vec![b'x'; number]);
                respond(out, headers, b"sent");
            }
            // Takes so many pages of memory, begins its answer, and stays.
            "/hold" => {
                let grown = core::arch::wasm32::memory_grow::<0>(number) != usize::MAX;
                let response = OutgoingResponse::new(Fields::new());
                let Ok(_body) = response.body() else { return };
                if grown {
                    ResponseOutparam::set(out, Ok(response));
                }
                std::thread::sleep(Duration::from_secs(3600));
            }
            "/log" => {
                for _ in 0..number {
                    println!("123456789");
                }
                answer(out, b"logged");
            }
            "/deep" => answer(out, deep(number as u64).to_string().as_bytes()),
            // Waits so many milliseconds, one at a time.
            "/wait" => {
                for _ in 0..number {
                    std::thread::sleep(Duration::from_millis(1));
                }
                answer(out, b"waited");
            }
            // Sends so many requests, to where the body says.
            "/fetch" => {
                let mut said = String::new();
                let to = read(request);
                for _ in 0..number {
                    let _ = writeln!(said, "{}", fetch(&to));
                }
                answer(out, said.as_bytes());
            }
            "/after" => {
                answer(out, b"answered");
                std::thread::sleep(Duration::from_secs(3600));
            }
            _ => answer(out, b"fine"),
        }
    }
}

fn answer(out: ResponseOutparam, bytes: &[u8]) {
    respond(out, Fields::new(), bytes);
}

fn respond(out: ResponseOutparam, headers: Fields, bytes: &[u8]) {
    let response = OutgoingResponse::new(headers);
    let Ok(body) = response.body() else { return };
    ResponseOutparam::set(out, Ok(response));
    if let Ok(stream) = body.write() {
        for piece in bytes.chunks(4096) {
            let _ = stream.blocking_write_and_flush(piece);
        }
    }
    let _ = OutgoingBody::finish(body, None);
}

#[inline(never)]
fn deep(left: u64) -> u64 {
    if std::hint::black_box(left) == 0 { 0 } else { std::hint::black_box(deep(left - 1)) + 1 }
}

fn read(request: IncomingRequest) -> String {
    let mut bytes = vec![];
    if let Ok(body) = request.consume()
        && let Ok(stream) = body.stream()
    {
        while let Ok(piece) = stream.blocking_read(4096) {
            bytes.extend(piece);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What came of a request to `scheme://host/path`: its status and body, or the error.
fn fetch(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let request = OutgoingRequest::new(Fields::new());
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    let said = request.set_scheme(Some(&scheme)).and(request.set_authority(Some(authority)));
    if said.and(request.set_path_with_query(Some(&format!("/{path}")))).is_err() {
        return "not an address".to_owned();
    }
    let future = match outgoing_handler::handle(request, None) {
        Ok(future) => future,
        Err(error) => return format!("{error:?}"),
    };
    future.subscribe().block();
    match future.get() {
        Some(Ok(Ok(response))) => {
            let to = response.headers().get("location").into_iter().next().unwrap_or_default();
            format!("{} {}", response.status(), String::from_utf8_lossy(&to))
        }
        Some(Ok(Err(error))) => format!("{error:?}"),
        _ => "nothing".to_owned(),
    }
}
