//! The least that a function can do. Also what the benches call, here and on the bare engine.

use weir_sdk::{Error, Request, Response, function};

#[function]
fn handle(_: Request) -> Result<Response, Error> {
    Ok(Response::text("Hello, world!\n"))
}
