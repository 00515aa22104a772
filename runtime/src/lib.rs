//! Weir runs the inference functions of many tenants, each a WebAssembly component in a sandbox of its own, and
//! shares one machine's devices among them.
//!
//! A call goes down through these modules and its answer comes back up:
//!
//! ```text
//! http/          routes, uploads, calls, problems
//! access/        who asks, and what they may
//! admission.rs   who may run now, who waits, who is refused
//! function/      what is deployed; from zero to awake and back; pools of sandboxes
//! sandbox/       the wall: engine, artifacts, stores with limits, wasi:nn, logs
//! weir-gpu       models and devices (a crate of its own, which knows nothing of the above)
//! ```
//!
//! Beside the path: `node.rs` (what all functions share; changes to what is deployed), `store/` (what survives a
//! restart), `backup/`, `preparation/` (opens uploads, in processes that may die), `stop.rs`, `limits.rs`, `catalog.rs`,
//! `model.rs`, `tenant.rs`, `policy/` (what may be deployed), `signature.rs`, `hosts.rs`, `rates.rs`, `meter/` (what calls use, and
//! what that costs), `audit.rs`, `config.rs`, `telemetry/` (metrics), `trace/` and `otlp/` (what is told of calls, and to whom), `webhook/`
//! (and of hours), `receiver.rs`, `log/`,
//! `name.rs`, `units.rs` and `schema.rs` (how texts look). The binary adds `cli/`.

mod access;
mod admission;
pub mod audit;
pub mod backup;
mod catalog;
pub mod config;
mod function;
#[cfg(fuzzing)]
pub mod fuzzing;
mod hosts;
mod http;
mod limits;
pub mod log;
mod meter;
mod model;
mod name;
mod node;
mod otlp;
pub mod policy;
mod preparation;
mod rates;
mod receiver;
mod sandbox;
mod schema;
pub mod signature;
mod stop;
mod store;
mod telemetry;
mod tenant;
mod trace;
pub mod units;
mod webhook;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use crate::config::Config;
use crate::config::Settings;
use crate::config::live::Reloaded;
pub use crate::http::DEV_TENANT;
pub use crate::http::tls::TlsFiles;
use crate::node::Node;
pub use crate::otlp::{Count, Counts};

/// Whether usage is as it was written: of a data directory, or of an export.
pub mod usage {
    pub use crate::meter::verify::{Export, Head, Noted, Sound, Verified, data, export};
}

/// How often it is kept when keys were last used.
const KEY_USES: Duration = Duration::from_secs(60);

/// A server that has its data directory and its address, and answers once [`Weir::serve`] is called.
pub struct Weir {
    node: Arc<Node>,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<tokio_rustls::TlsAcceptor>,
    router: axum::Router,
    routes: Vec<(&'static str, &'static str)>,
}

impl Weir {
    /// Opens the data directory, restores what is in it, and binds the address (port 0 for any).
    ///
    /// # Errors
    /// A data directory that another server has or that cannot be used; an address that is taken.
    pub async fn build(config: &Config) -> anyhow::Result<Self> {
        let node = Node::open(config).await?;
        let listener = TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("cannot listen on {}; is another server there?", config.listen))?;
        let address = listener.local_addr()?;
        let (router, routes) = http::router(Arc::clone(&node));
        let tls = config.tls.clone().map(http::tls::acceptor).transpose()?;
        Ok(Self { node, listener, address, tls, router, routes })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The methods, `ANY` for all, and paths of what it serves.
    pub fn routes(&self) -> &[(&'static str, &'static str)] {
        &self.routes
    }

    /// The door to devices, for what the HTTP surface does not show.
    pub fn devices(&self) -> weir_gpu::Service {
        self.node.service.clone()
    }

    /// What has become of the traces, metrics and logs that were to be sent, where they are.
    pub fn exported(&self) -> Option<Arc<Counts>> {
        self.node.exporter.as_ref().map(|exporter| Arc::clone(exporter.counts()))
    }

    /// What a running server is told with.
    pub fn control(&self) -> Control {
        Control(Arc::clone(&self.node))
    }

    /// Serves until `stop` is ready. Then it is not ready any more, and serves on for the stop delay; after that no more
    /// connections are taken, followers of logs are let go, and requests that are under way have the stop timeout to end.
    /// When it returns, all that was acknowledged is in the data directory, which is free for another server.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) {
        let served = Served(self.node);
        let node = Arc::clone(&served.0);
        let stopping = Arc::clone(&node);
        let asked = tokio::spawn(async move {
            stop.await;
            stopping.stop.asked.cancel();
            let delay = tokio::time::sleep(stopping.settings().stop_delay);
            stopping.stop.cut.run_until_cancelled(delay).await;
            stopping.stop.ended.cancel();
        });
        // What goes on beside the calls ends with this.
        let mut beside = JoinSet::new();
        beside.spawn({
            let node = Arc::clone(&node);
            async move {
                loop {
                    tokio::time::sleep(KEY_USES).await;
                    node.keep_key_uses().await;
                }
            }
        });
        beside.spawn({
            let node = Arc::clone(&node);
            async move { node.meter.run(&node.store).await }
        });
        beside.spawn({
            let node = Arc::clone(&node);
            async move {
                loop {
                    tokio::time::sleep(node.meter.interval()).await;
                    node.record_rest();
                }
            }
        });
        beside.spawn({
            let node = Arc::clone(&node);
            async move { node.keep_budgets().await }
        });
        beside.spawn({
            let node = Arc::clone(&node);
            async move { node.send_metrics().await }
        });
        if let Some(webhook) = node.webhook.clone() {
            let node = Arc::clone(&node);
            beside.spawn(async move { webhook.run(&node.meter, &node.store).await });
        }
        http::serve::serve(self.listener, self.tls, Arc::clone(&node), self.router).await;
        asked.abort();
        beside.shutdown().await;
        node.close().await;
    }
}

/// What is served. Its functions leave memory with it, also where serving is given up before its end.
struct Served(Arc<Node>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// Tells a running server to do otherwise.
pub struct Control(Arc<Node>);

impl Control {
    /// Takes over what of these settings can hold at once, and the policy.
    ///
    /// # Errors
    /// A sentence that names the setting that is wrong; nothing has changed then.
    pub async fn reload(&self, settings: &Settings, policy: policy::Policy) -> Result<Reloaded, String> {
        self.0.reload(settings, policy).await
    }

    /// Once it has been told to stop: cuts what is under way, without waiting for it.
    pub fn cut(&self) {
        self.0.stop.cut.cancel();
    }
}

/// The description of the HTTP surface: OpenAPI 3.1, as JSON text.
pub fn openapi() -> String {
    http::describe()
}

/// What `weir prepare ORDER` does: opens an upload in a process that may die. Only the server starts it.
pub fn prepare(order: &str) -> std::process::ExitCode {
    preparation::main(order)
}

/// Whether a function can have this name.
///
/// # Errors
/// A sentence that shows the name and the rule.
pub fn check_function_name(name: &str) -> Result<(), String> {
    name::Name::function(name).map(|_| ())
}

/// Whether a tenant can have this name.
///
/// # Errors
/// A sentence that shows the name and the rule.
pub fn check_tenant_name(name: &str) -> Result<(), String> {
    name::Name::tenant(name).map(|_| ())
}

/// Random bytes of the system's, fit for secrets.
fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// This moment, as records carry it: RFC 3339, UTC, seconds.
fn now() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}
