//! The least that a function can do, as a `wasi:http/handler@0.3` component without Weir's SDK.

use wasip3::exports::http::handler::Guest;
use wasip3::http::types::{ErrorCode, Fields, Request, Response};
use wasip3::{wit_future, wit_stream};

struct Hello;

wasip3::http::service::export!(Hello);

impl Guest for Hello {
    async fn handle(_: Request) -> Result<Response, ErrorCode> {
        let (mut writer, body) = wit_stream::new();
        let (trailers, no_trailers) = wit_future::new(|| Ok(None));
        let (response, _sent) = Response::new(Fields::new(), Some(body), no_trailers);
        wasip3::wit_bindgen::spawn_local(async move {
            writer.write_all(b"Hello from 0.3!\n".to_vec()).await;
            drop(writer);
            drop(trailers);
        });
        Ok(response)
    }
}
