//! Connections: as many as may be at one time, none of which can be held open by doing nothing.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

use super::guard::Peer;
use crate::node::Node;

/// Descriptors that are not for connections: files, pipes, mapped artifacts.
const OTHER_FILES: u64 = 1000;

/// Takes connections until the node is told to stop; then those under way have the stop timeout to end.
pub async fn serve(listener: TcpListener, node: Arc<Node>, router: Router) {
    let connections = Arc::new(Semaphore::new(most_connections(node.settings.http.connections.get())));
    let graceful = GracefulShutdown::new();
    loop {
        let next = async {
            // Those beyond the most wait to be accepted, in the system's own queue.
            let permit = Arc::clone(&connections).acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((listener.accept().await?, permit))
        };
        tokio::select! {
            next = next => match next {
                Ok(((stream, peer), permit)) => {
                    connection(stream, Peer(peer), permit, &node, router.clone(), &graceful);
                }
                Err(error) => {
                    // Most often there is no descriptor left for it; others will be given back.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            () = node.stopping.cancelled() => break,
        }
    }
    drop(listener);
    if tokio::time::timeout(node.settings.stop_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests under way did not end in time and are broken off");
    }
}

fn connection(
    stream: TcpStream,
    peer: Peer,
    permit: OwnedSemaphorePermit,
    node: &Arc<Node>,
    router: Router,
    graceful: &GracefulShutdown,
) {
    // Answers are small and written whole: waiting to fill packets only delays them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "nodelay is not set");
    }
    let config = &node.settings.http;
    let mut stream = TimeoutStream::new(stream);
    // A client that does not read its answer.
    stream.set_write_timeout(Some(config.write_timeout));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.head_timeout)
        .max_header_size(config.head_bytes.as_usize())
        .serve_connection(
            TokioIo::new(Box::pin(stream)),
            From { peer, inner: TowerToHyperService::new(router) },
        );
    let (serving, counted) = (graceful.watch(serving), node.telemetry.connection());
    tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::debug!(%error, "a connection broke off");
        }
        drop((permit, counted));
    });
}

/// Says of each request where it came from.
struct From<S> {
    peer: Peer,
    inner: S,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for From<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: Request<Incoming>) -> S::Future {
        request.extensions_mut().insert(self.peer);
        self.inner.call(request)
    }
}

/// The connections that this process has descriptors for, up to `wanted`. Source: getrlimit(2).
fn most_connections(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let files = current.unwrap_or(u64::MAX);
    let possible = usize::try_from(files.saturating_sub(OTHER_FILES.min(files / 2))).unwrap_or(usize::MAX);
    if possible < wanted {
        tracing::warn!(
            files,
            "this process may have few open files, so it takes {possible} connections at one time"
        );
    }
    wanted.min(possible)
}
