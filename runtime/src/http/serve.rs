//! Connections: as many as may be at one time, none of which can be held open by doing nothing.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use super::guard::Peer;
use crate::node::Node;

/// Descriptors that are not for connections: files, pipes, mapped artifacts.
const OTHER_FILES: u64 = 1000;

/// How long connections that are cut may take to be gone.
const CUTTING: Duration = Duration::from_secs(2);

/// Takes connections until the node stops; then requests under way have the stop timeout to end, and what is left is cut.
pub async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, node: Arc<Node>, router: Router) {
    let connections = Arc::new(Semaphore::new(most_connections(node.settings().http.connections.get())));
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
                    let connection = Connection { peer: Peer(peer), permit, watcher: graceful.watcher() };
                    connection.serve(stream, tls.clone(), &node, router.clone());
                }
                Err(error) => {
                    // Most often there is no descriptor left for it; others will be given back.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            () = node.stop.ended.cancelled() => break,
        }
    }
    drop(listener);
    let mut all_ended = pin!(graceful.shutdown());
    tokio::select! {
        () = &mut all_ended => return,
        () = tokio::time::sleep(node.settings().stop_timeout) => node.stop.cut.cancel(),
        () = node.stop.cut.cancelled() => {}
    }
    tracing::warn!("requests under way did not end in time and are cut");
    if tokio::time::timeout(CUTTING, all_ended).await.is_err() {
        tracing::warn!("connections are left to the end of the process");
    }
}

/// What goes with a connection until its end.
struct Connection {
    peer: Peer,
    permit: OwnedSemaphorePermit,
    watcher: Watcher,
}

/// Bytes from and to a client, in the open or not.
trait Wire: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Wire for T {}

impl Connection {
    fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>, node: &Arc<Node>, router: Router) {
        // Answers are small and written whole: waiting to fill packets only delays them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "nodelay is not set");
        }
        let settings = node.settings();
        let config = &settings.http;
        let mut stream = TimeoutStream::new(stream);
        // A client that does not read its answer.
        stream.set_write_timeout(Some(config.write_timeout));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(config.head_timeout)
            .max_header_size(config.head_bytes.as_usize());
        let (patience, counted) = (config.head_timeout, node.telemetry.connection());
        let stop = node.stop.clone();
        let node = Arc::clone(node);
        let Self { peer, permit, watcher } = self;
        tokio::spawn(async move {
            let wire: Pin<Box<dyn Wire>> = match tls {
                None => Box::pin(stream),
                Some(tls) => {
                    let comes_to_be = tokio::time::timeout(patience, tls.accept(Box::pin(stream)));
                    // There is no request on it yet that a stop would wait for.
                    match stop.ended.run_until_cancelled(comes_to_be).await {
                        Some(Ok(Ok(stream))) => Box::pin(stream),
                        Some(Ok(Err(error))) => {
                            return tracing::debug!(%error, "a connection did not come to be");
                        }
                        Some(Err(_)) => return tracing::debug!("a connection took too long to come to be"),
                        None => return tracing::debug!("a connection had not come to be at the stop"),
                    }
                }
            };
            let service = From { peer, node, inner: TowerToHyperService::new(router) };
            let connection = watcher.watch(http.serve_connection(TokioIo::new(wire), service));
            match stop.cut.run_until_cancelled(connection).await {
                None => tracing::debug!("a connection is cut"),
                Some(Err(error)) => tracing::debug!(%error, "a connection broke off"),
                Some(Ok(())) => {}
            }
            drop((permit, counted));
        });
    }
}

/// Says of each request where it came from, and sends it to the function whose host it names.
struct From<S> {
    peer: Peer,
    node: Arc<Node>,
    inner: S,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for From<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: Request<Incoming>) -> S::Future {
        request.extensions_mut().insert(self.peer);
        let settings = self.node.settings();
        if let Some(uri) = self.node.hosts.rewrite(request.uri(), request.headers(), &settings.http) {
            *request.uri_mut() = uri;
        }
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
