//! `weir serve`

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use tracing_subscriber::EnvFilter;
use weir::policy::Policy;
use weir::{Config, TlsFiles, Weir};

use super::client::Failure;

#[derive(Args)]
pub struct Serve {
    /// Where to listen
    #[arg(long, env = "WEIR_LISTEN", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// Where functions, models and logs live
    #[arg(long, env = "WEIR_DATA_DIR", default_value = "weir-data")]
    data_dir: PathBuf,
    /// A configuration file (TOML); docs/weir.toml has every value with its default
    #[arg(long, env = "WEIR_CONFIG")]
    config: Option<PathBuf>,
    /// What tenants may deploy (TOML; docs/policy.md), in place of the configuration file's `policy.file`
    #[arg(long, env = "WEIR_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Ask nobody for a key: loopback only, everyone the operator, one tenant, `default`
    #[arg(long)]
    dev: bool,
    /// The server's certificate chain (PEM), to serve https; read again when it changes
    #[arg(long, env = "WEIR_TLS_CERT", requires = "tls_key", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, env = "WEIR_TLS_KEY", requires = "tls_cert", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Write the server's log as JSON
    #[arg(long, env = "WEIR_LOG_JSON")]
    log_json: bool,
}

impl Serve {
    pub async fn run(self) -> Result<(), Failure> {
        let filter = EnvFilter::try_from_env("WEIR_LOG")
            .unwrap_or_else(|_| EnvFilter::new("info,tract_core=warn,tract_onnx=warn"));
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            // Whoever read stderr may have gone: that is no reason for what was to be logged to fail.
            .log_internal_errors(false)
            .with_ansi(std::io::stderr().is_terminal());
        if self.log_json {
            log.json().init()
        } else {
            log.init()
        }

        let config = Config::new(self.listen, self.data_dir, self.config.as_deref(), self.dev)
            .map_err(|error| Failure::Usage(format!("{error:#}")))?;
        let tls = self.tls_cert.zip(self.tls_key).map(|(cert, key)| TlsFiles { cert, key });
        let scheme = if tls.is_some() { "https" } else { "http" };
        let policy = match &self.policy {
            Some(file) => Policy::read(file).map_err(|error| Failure::Usage(format!("{error:#}")))?,
            None => config.policy,
        };
        let config = Config { tls, policy, ..config };
        let failed = |error: anyhow::Error| Failure::Local(format!("{error:#}"));
        let weir = Weir::build(&config).await.map_err(failed)?;
        if config.tls.is_none() && !weir.address().ip().to_canonical().is_loopback() {
            tracing::warn!("keys and all else go over the network in the open: use --tls-cert and --tls-key");
        }
        tracing::info!(data_dir = %config.data_dir.display(), "listening on {scheme}://{}", weir.address());
        weir.serve(stop()).await;
        Ok(())
    }
}

/// Ready at the first Ctrl-C or SIGTERM.
async fn stop() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                tokio::select! {
                    _ = interrupt => {}
                    _ = terminate.recv() => {}
                }
            }
            Err(_) => drop(interrupt.await),
        }
    }
    #[cfg(not(unix))]
    drop(interrupt.await);
    tracing::info!("stopping: no more connections, requests under way end");
}
