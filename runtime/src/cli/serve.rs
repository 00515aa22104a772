//! `weir serve`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;
use weir::config::Files;
use weir::config::live::Reloaded;
use weir::log::{Format, Log};
use weir::{Config, Control, TlsFiles, Weir};

use super::client::Failure;

#[derive(Args)]
pub struct Serve {
    /// Where to listen
    #[arg(long, env = "WEIR_LISTEN", default_value = "127.0.0.1:7070", value_name = "IP:PORT", value_parser = listen)]
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
    /// Make another operator's key, where those that there are are lost; it is written to `operator.key` in the data directory
    #[arg(long, conflicts_with = "dev")]
    new_operator_key: bool,
    /// The server's certificate chain (PEM), to serve https; read again when it changes
    #[arg(long, env = "WEIR_TLS_CERT", requires = "tls_key", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, env = "WEIR_TLS_KEY", requires = "tls_cert", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Write the server's log as JSON, whatever the configuration file's `log.format` says
    #[arg(long, env = "WEIR_LOG_JSON")]
    log_json: bool,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write IP:PORT, such as 127.0.0.1:7070 or [::1]:7070".to_owned())
}

impl Serve {
    pub async fn run(self) -> Result<(), Failure> {
        let filter = EnvFilter::try_from_env("WEIR_LOG")
            .unwrap_or_else(|_| EnvFilter::new("info,tract_core=warn,tract_onnx=warn"));
        let files = Files { config: self.config, policy: self.policy };
        let config = Config::new(self.listen, self.data_dir, &files, self.dev)
            .map_err(|error| Failure::Usage(format!("{error:#}")))?;
        let format = if self.log_json { Format::Json } else { config.settings.log.format };
        let log = Log::start(format, filter);
        let tls = self.tls_cert.zip(self.tls_key).map(|(cert, key)| TlsFiles { cert, key });
        let scheme = if tls.is_some() { "https" } else { "http" };
        let config = Config { tls, new_operator_key: self.new_operator_key, ..config };
        let failed = |error: anyhow::Error| Failure::Local(format!("{error:#}"));
        let weir = Weir::build(&config).await.map_err(failed)?;
        log.export(&weir);
        let control = Arc::new(weir.control());
        // Before it says that it listens: whoever reads that may send one.
        let receive = |kind| signal(kind).map_err(|error| failed(error.into()));
        let hangup = receive(SignalKind::hangup())?;
        let (interrupt, terminate) = (receive(SignalKind::interrupt())?, receive(SignalKind::terminate())?);
        if config.tls.is_none() && !weir.address().ip().to_canonical().is_loopback() {
            tracing::warn!("keys and all else go over the network in the open: use --tls-cert and --tls-key");
        }
        tracing::info!(data_dir = %config.data_dir.display(), "listening on {scheme}://{}", weir.address());
        tokio::spawn(reload(hangup, Arc::clone(&control), files));
        weir.serve(stop([interrupt, terminate], control)).await;
        tracing::info!("stopped");
        Ok(())
    }
}

/// Ready at the first signal to stop; the next one cuts what is under way.
async fn stop(mut signals: [Signal; 2], control: Arc<Control>) {
    next(&mut signals).await;
    tracing::info!("stopping: requests under way end; a second signal cuts them");
    tokio::spawn(async move {
        next(&mut signals).await;
        tracing::warn!("told again to stop: requests under way are cut");
        control.cut();
    });
}

/// Waits for either of the signals.
async fn next([interrupt, terminate]: &mut [Signal; 2]) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Reads the configuration file and the policy again at each signal, and has the server take over what can hold at once.
async fn reload(mut hangup: Signal, control: Arc<Control>, files: Files) {
    while hangup.recv().await.is_some() {
        if files.config.is_none() && files.policy.is_none() {
            tracing::warn!("told to read the configuration file again, but there is none: use --config");
            continue;
        }
        let reloaded = match files.read() {
            Ok((settings, policy)) => control.reload(&settings, policy).await,
            Err(error) => Err(format!("{error:#}")),
        };
        match reloaded {
            Ok(Reloaded { now, later }) => {
                for change in &now {
                    tracing::info!("changed: {change}");
                }
                for change in &later {
                    tracing::warn!("changed, and holds from the next start on: {change}");
                }
                let (now, later) = (now.len(), later.len());
                tracing::info!(now, later, "the configuration file was read again");
            }
            Err(error) => tracing::error!(error, "the configuration file is refused; nothing has changed"),
        }
    }
}
