//! The twin without a sandbox: the same answer from a bare axum handler.

use axum::Router;
use axum::routing::any;
use axum::serve::ListenerExt;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, Router::new().fallback(any(|| async { "Hello, world!\n" }))).await
}
