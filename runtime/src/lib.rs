//! Weir runs the inference functions of many tenants, each a WebAssembly component in a sandbox of its own, and
//! shares one machine's devices among them.
//!
//! A call goes down through these modules and its answer comes back up:
//!
//! ```text
//! http/          routes, uploads, calls, problems
//! admission.rs   who may run now, who waits, who is refused
//! function/      what is deployed; from zero to awake and back; pools of sandboxes
//! sandbox/       the wall: engine, artifacts, stores with limits, wasi:nn, logs
//! weir-gpu       models and devices (a crate of its own, which knows nothing of the above)
//! ```
//!
//! Beside the path: `node.rs` (what all functions share; changes to what is deployed), `store/` (what survives a
//! restart), `catalog.rs`, `model.rs`, `config.rs`, `telemetry.rs`, `name.rs` and `units.rs`. The binary adds `cli/`.

mod admission;
mod catalog;
pub mod config;
mod function;
mod http;
mod model;
mod name;
mod node;
mod sandbox;
mod store;
mod telemetry;
pub mod units;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;

pub use crate::config::Config;
pub use crate::http::DEV_TENANT;
use crate::node::Node;

/// A server that has its data directory and its address, and answers once [`Weir::serve`] is called.
pub struct Weir {
    node: Arc<Node>,
    listener: TcpListener,
    address: SocketAddr,
}

impl Weir {
    /// Opens the data directory, restores what is in it, and binds the address (port 0 for any).
    ///
    /// # Errors
    /// A data directory that another server has or that cannot be used; an address that is taken.
    pub async fn build(config: &Config) -> anyhow::Result<Self> {
        let node = Node::open(config)?;
        let listener = TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("cannot listen on {}; is another server there?", config.listen))?;
        let address = listener.local_addr()?;
        Ok(Self { node, listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The door to devices, for what the HTTP surface does not show.
    pub fn devices(&self) -> weir_gpu::Service {
        self.node.service.clone()
    }

    /// Serves until `stop` is ready; then no more connections are taken, followers of logs are let go, and requests
    /// that are under way have the stop timeout to end.
    ///
    /// # Errors
    /// When the listening socket fails.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        use axum::serve::ListenerExt;
        // Answers are small and written whole: waiting to fill packets only delays them.
        let listener = self.listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "nodelay is not set");
            }
        });
        let node = self.node;
        let (stopping, patience) = (node.stopping.clone(), node.settings.stop_timeout);
        let asked = {
            let stopping = stopping.clone();
            async move {
                stop.await;
                stopping.cancel();
            }
        };
        let serving = axum::serve(listener, http::router(Arc::clone(&node))).with_graceful_shutdown(asked);
        let out_of_patience = async {
            stopping.cancelled().await;
            tokio::time::sleep(patience).await;
        };
        let served = tokio::select! {
            served = serving.into_future() => served,
            () = out_of_patience => {
                tracing::warn!("requests under way did not end in time and are broken off");
                Ok(())
            }
        };
        node.close();
        served
    }
}

/// Whether a function can have this name.
///
/// # Errors
/// A sentence that shows the name and the rule.
pub fn check_function_name(name: &str) -> Result<(), String> {
    name::Name::function(name).map(|_| ())
}

/// This moment, as records carry it: RFC 3339, UTC, seconds.
fn now() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}
