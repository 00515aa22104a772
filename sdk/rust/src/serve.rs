//! One request of the host, handed to the tenant's function, and its answer handed back.

use crate::bindings::wasi::http::types::{
    Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam,
};
use crate::bindings::wasi::io::streams::StreamError;
use crate::{Error, Request, Response, log};

/// Answers `request` with what `handler` makes of it; an error becomes a problem document.
pub fn serve<E: Into<Error>>(
    request: IncomingRequest,
    out: ResponseOutparam,
    handler: fn(Request) -> Result<Response, E>,
) {
    let answer = handler(Request::from_host(request)).map_err(Into::into);
    let response = answer.unwrap_or_else(answer_to);
    let outgoing = match outgoing(&response) {
        Ok(outgoing) => Ok((outgoing, response)),
        Err(error) => {
            let response = answer_to(error);
            outgoing(&response).map(|outgoing| (outgoing, response))
        }
    };
    match outgoing {
        Ok((outgoing, response)) => send(outgoing, out, response.body()),
        // Only an error with a header of its own that HTTP does not allow comes here: answer without it.
        Err(error) => {
            let response = answer_to(error);
            let outgoing = OutgoingResponse::new(Fields::new());
            let _ = outgoing.set_status_code(response.status());
            send(outgoing, out, response.body());
        }
    }
}

/// Lets the compiler check, off Wasm, what `serve` would.
pub fn check<E: Into<Error>>(_: fn(Request) -> Result<Response, E>) {}

fn answer_to(error: Error) -> Response {
    if error.status() >= 500 {
        log::error!("{error}");
    }
    Response::from(error)
}

/// The response's status and headers as the host's, or 500 `invalid_response`.
fn outgoing(response: &Response) -> Result<OutgoingResponse, Error> {
    let invalid = |what: String| Error::new(500, "invalid_response", what);
    let fields = Fields::new();
    let append = |name: &str, value: &str| {
        fields
            .append(name, value.as_bytes())
            .map_err(|error| invalid(format!("the response's header `{name}` cannot be sent: {error:?}")))
    };
    for (name, value) in response.headers() {
        append(name, value)?;
    }
    if response.needs_content_length() {
        append("content-length", &response.body().len().to_string())?;
    }
    let outgoing = OutgoingResponse::new(fields);
    let status = response.status();
    if !(200..=599).contains(&status) || outgoing.set_status_code(status).is_err() {
        return Err(invalid(format!("the response's status {status} cannot be sent")));
    }
    Ok(outgoing)
}

/// Sends head, then body. Errors here mean that the caller has gone, and that there is nobody left to tell.
fn send(outgoing: OutgoingResponse, out: ResponseOutparam, bytes: &[u8]) {
    let body = outgoing.body();
    ResponseOutparam::set(out, Ok(outgoing));
    let Ok(body) = body else { return };
    if bytes.is_empty() || write_all(&body, bytes).is_ok() {
        let _ = OutgoingBody::finish(body, None);
    }
}

/// Writes as much at a time as the host has room for, and waits when it has none.
fn write_all(body: &OutgoingBody, mut bytes: &[u8]) -> Result<(), StreamError> {
    let Ok(stream) = body.write() else { return Err(StreamError::Closed) };
    while !bytes.is_empty() {
        let room = stream.check_write()?;
        if room == 0 {
            stream.subscribe().block();
            continue;
        }
        let (now, later) = bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
        stream.write(now)?;
        bytes = later;
    }
    stream.blocking_flush()
}
