//! A copy of all that is kept, as a tar archive.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::problem::Problem;
use super::whole;
use crate::audit::Actor;
use crate::backup::Backup;
use crate::node::Node;

/// Bytes of a piece on its way to the client.
const PIECE: usize = 64 << 10;

/// Pieces that may wait for the client.
const PIECES: usize = 4;

/// `POST /v1/backup`: `application/x-tar`, as of the moment when the request comes. If it breaks off, it is none.
pub async fn make(State(node): State<Arc<Node>>, by: Actor) -> Result<Response, Problem> {
    let permit = node.backup()?;
    let snapshot = whole(async move { node.snapshot(&by).await }).await?;
    let backup = tokio::task::spawn_blocking(move || Backup::new(snapshot)).await;
    let backup = backup.map_err(|error| Problem::internal(&error.into()))??;
    let bytes = backup.bytes();
    let (to_client, pieces) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let out = BufWriter::with_capacity(PIECE, Pieces(to_client.clone()));
        match backup.write(out) {
            Ok(()) => tracing::info!(bytes, "a backup is made"),
            Err(error) => {
                tracing::error!(%error, "a backup broke off");
                // Whoever waits for the rest learns that there is none.
                drop(to_client.blocking_send(Err(error)));
            }
        }
    });
    let head =
        [(header::CONTENT_TYPE, "application/x-tar".to_owned()), (header::CONTENT_LENGTH, bytes.to_string())];
    Ok((head, Body::from_stream(ReceiverStream::new(pieces))).into_response())
}

/// What is written goes to the client, as fast as it takes it.
struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone");
        self.0.blocking_send(Ok(Bytes::copy_from_slice(from))).map_err(gone)?;
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
