//! Misbehaves as its path says.

use std::time::Duration;

use weir_sdk::bindings::exports::wasi::http::incoming_handler::Guest;
use weir_sdk::bindings::wasi::http::outgoing_handler;
use weir_sdk::bindings::wasi::http::types::{
    Fields, IncomingRequest, OutgoingBody, OutgoingRequest, OutgoingResponse, ResponseOutparam,
};

struct Trouble;

weir_sdk::bindings::export!(Trouble with_types_in weir_sdk::bindings);

impl Guest for Trouble {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let path = request.path_with_query().unwrap_or_default();
        match path.as_str() {
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
            "/outgoing" => {
                let request = OutgoingRequest::new(Fields::new());
                let _ = request.set_authority(Some("127.0.0.1:1"));
                let _ = request.set_path_with_query(Some("/"));
                let said = match outgoing_handler::handle(request, None) {
                    Err(error) => format!("{error:?}"),
                    Ok(answer) => {
                        answer.subscribe().block();
                        match answer.get() {
                            Some(Ok(Err(error))) => format!("{error:?}"),
                            _ => "it went out".to_owned(),
                        }
                    }
                };
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
    let response = OutgoingResponse::new(Fields::new());
    let Ok(body) = response.body() else { return };
    ResponseOutparam::set(out, Ok(response));
    if let Ok(stream) = body.write() {
        let _ = stream.blocking_write_and_flush(bytes);
    }
    let _ = OutgoingBody::finish(body, None);
}
