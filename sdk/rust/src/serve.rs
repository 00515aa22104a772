//! One request, handed to the tenant's function, and its answer handed back.

use std::future::Future;

use crate::{Error, Request, Response, host, log};

/// What a handler gives back: a `Result<Response, E>` with `E: Into<Error>`, or a future of one (`async fn`), which is run to its end.
/// The parameter only tells the two apart; leave it to the compiler.
pub trait Answer<Kind> {
    /// Waits for it.
    fn wait(self) -> Result<Response, Error>;
}

/// The kind of handlers that answer when they return.
#[derive(Debug)]
pub enum Sync {}

/// The kind of handlers that return a future.
#[derive(Debug)]
pub enum Async {}

impl<E: Into<Error>> Answer<Sync> for Result<Response, E> {
    fn wait(self) -> Result<Response, Error> {
        self.map_err(Into::into)
    }
}

impl<F: Future<Output = Result<Response, E>>, E: Into<Error>> Answer<Async> for F {
    fn wait(self) -> Result<Response, Error> {
        host::block_on(self).map_err(Into::into)
    }
}

/// What `handler` makes of the request; an error becomes a problem document, and a line in the log if it is the function's fault.
pub fn answer<A: Answer<K>, K>(handler: impl FnOnce(Request) -> A, request: Request) -> Response {
    handler(request).wait().unwrap_or_else(problem)
}

fn problem(error: Error) -> Response {
    if error.status() >= 500 {
        log::error!("{error}");
    }
    Response::from(error)
}

/// Lets the compiler check, off Wasm, what `serve` would.
pub fn check<A: Answer<K>, K>(_: fn(Request) -> A) {}

#[cfg(target_arch = "wasm32")]
mod wasi {
    use super::{Answer, answer, problem};
    use crate::bindings::wasi::http::types::{Fields, IncomingRequest, OutgoingResponse, ResponseOutparam};
    use crate::{Error, Request, Response, host, log};

    /// Answers the host's `request` with what `handler` makes of it.
    pub fn serve<A: Answer<K>, K>(
        request: IncomingRequest,
        out: ResponseOutparam,
        handler: fn(Request) -> A,
    ) {
        let response = answer(handler, Request::from_host(host::Incoming(request)));
        let (outgoing, response) = match outgoing(&response) {
            Ok(outgoing) => (outgoing, response),
            Err(error) => {
                let response = problem(error);
                // Only an error with a header of its own that HTTP does not allow fails here: answer without it.
                let outgoing = outgoing(&response).unwrap_or_else(|_| OutgoingResponse::new(Fields::new()));
                let _ = outgoing.set_status_code(response.status());
                (outgoing, response)
            }
        };
        let body = outgoing.body();
        ResponseOutparam::set(out, Ok(outgoing));
        if let Ok(body) = body
            && let Err(error) = host::send(body, response.into_body())
        {
            log::error!("the answer ends unfinished: {error}");
        }
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
        if let Some(length) = response.content_length() {
            append("content-length", &length.to_string())?;
        }
        let outgoing = OutgoingResponse::new(fields);
        let status = response.status();
        if !(200..=599).contains(&status) || outgoing.set_status_code(status).is_err() {
            return Err(invalid(format!("the response's status {status} cannot be sent")));
        }
        Ok(outgoing)
    }
}
#[cfg(target_arch = "wasm32")]
pub use wasi::serve;
