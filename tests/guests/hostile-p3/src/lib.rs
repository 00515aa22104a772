//! Does harm as its path says, as a component of `wasi:http` 0.3: one file of `behaviours` for each kind, found by
//! build.rs.

use wasip3::exports::http::handler::Guest;
use wasip3::http::types::{ErrorCode, Fields, Request, Response};
use wasip3::wit_bindgen::StreamWriter;
use wasip3::{wit_future, wit_stream};

/// A behaviour gets its answer's body to write, after the answer's head has gone.
type Run = fn(StreamWriter<u8>);

include!(concat!(env!("OUT_DIR"), "/behaviours.rs"));

struct Hostile;

wasip3::http::service::export!(Hostile);

impl Guest for Hostile {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let path = request.get_path_with_query().unwrap_or_default();
        let name = path.split('?').next().unwrap_or_default().trim_start_matches('/');
        let run = behaviour(name).ok_or(ErrorCode::DestinationNotFound)?;
        let (writer, body) = wit_stream::new();
        let (trailers, no_trailers) = wit_future::new(|| Ok(None));
        let (response, _sent) = Response::new(Fields::new(), Some(body), no_trailers);
        drop(trailers);
        run(writer);
        Ok(response)
    }
}
