//! What the operator sets. The only place that reads configuration files, flags and environment of the server; what
//! comes out is typed and checked, and nothing past here looks again.

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::http::tls::TlsFiles;
use crate::log::Format;
use crate::policy::Policy;
use crate::units::{Size, span};

mod http;
pub mod live;
mod metering;
mod metrics;
pub mod otlp;
mod sharing;
mod webhook;

pub use http::HttpConfig;
pub use metering::{MeteringConfig, WhenFull};
pub use metrics::MetricsConfig;
pub use otlp::{OtlpConfig, Protocol};
pub use sharing::{Eviction, ModelsConfig, SchedulingConfig, TenantConfig};
pub use webhook::WebhookConfig;

/// Everything that a server is started with.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    /// Where functions, models and logs live.
    pub data_dir: PathBuf,
    /// The binary `weir`, which opens untrusted uploads in processes of their own.
    pub binary: PathBuf,
    pub settings: Settings,
    /// Whether nobody is asked for a key: all are the operator, in the tenant `default`.
    pub dev: bool,
    /// Whether an operator's key is made though there are some: they may be lost.
    pub new_operator_key: bool,
    /// Without these, what goes over the network goes in the open.
    pub tls: Option<TlsFiles>,
    /// What tenants may deploy.
    pub policy: Policy,
}

/// The configuration file (TOML). Every value has a default, and an unknown name is an error.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How long the server goes on as before when it is told to stop, but for `/readyz`, which says so.
    #[serde(with = "span")]
    pub stop_delay: Duration,
    /// How long requests under way may take to end after that.
    #[serde(with = "span")]
    pub stop_timeout: Duration,
    pub http: HttpConfig,
    pub sandbox: SandboxConfig,
    pub limits: Maxima,
    pub preparation: PreparationConfig,
    pub egress: EgressConfig,
    pub policy: PolicyConfig,
    pub cpu: CpuConfig,
    pub gpu: GpuConfig,
    pub tenant: TenantConfig,
    pub scheduling: SchedulingConfig,
    pub models: ModelsConfig,
    pub logs: LogConfig,
    pub functions: FunctionsConfig,
    pub metering: MeteringConfig,
    pub log: ServerLogConfig,
    pub otlp: OtlpConfig,
    pub metrics: MetricsConfig,
    pub webhook: WebhookConfig,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            stop_delay: Duration::ZERO,
            stop_timeout: Duration::from_secs(30),
            http: HttpConfig::default(),
            sandbox: SandboxConfig::default(),
            limits: Maxima::default(),
            preparation: PreparationConfig::default(),
            egress: EgressConfig::default(),
            policy: PolicyConfig::default(),
            cpu: CpuConfig::default(),
            gpu: GpuConfig::default(),
            tenant: TenantConfig::default(),
            scheduling: SchedulingConfig::default(),
            models: ModelsConfig::default(),
            logs: LogConfig::default(),
            functions: FunctionsConfig::default(),
            metering: MeteringConfig::default(),
            log: ServerLogConfig::default(),
            otlp: OtlpConfig::default(),
            metrics: MetricsConfig::default(),
            webhook: WebhookConfig::default(),
        }
    }
}

/// The pool of sandboxes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxConfig {
    /// The most sandboxes at one time, over all functions.
    pub sandboxes: NonZeroU32,
    /// Core modules that the average sandbox is made of; a component written in an interpreted language has a dozen.
    pub parts: NonZeroU32,
    /// The most memory of all sandboxes together, with what the host keeps for them; half of what this process may
    /// have when absent.
    pub memory: Option<Size>,
    /// How deep a guest's calls may go.
    pub stack: Size,
    /// Memory of a slot that is cleared and kept when its sandbox ends, instead of being given back to the system.
    pub keep_resident: Size,
    /// How often a spinning guest yields its thread.
    #[serde(with = "span")]
    pub epoch: Duration,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            sandboxes: nonzero(1000),
            parts: nonzero(4),
            memory: None,
            stack: Size::bytes(512 << 10),
            keep_resident: Size::mib(2),
            epoch: Duration::from_millis(10),
        }
    }
}

/// The most that uploads and a function's configuration may ask for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Maxima {
    pub component_bytes: Size,
    pub model_bytes: Size,
    /// What a model may plan to need at one time: its weights and the tensors of a run.
    pub model_memory: Size,
    /// Multiply-adds of one operator of a model; nothing can stop it in the middle.
    pub operator_cost: u64,
    pub memory: Size,
    pub table_elements: u32,
    pub instances: u32,
    pub memories: u32,
    pub tables: u32,
    #[serde(with = "span")]
    pub cpu_time: Duration,
    pub request_bytes: Size,
    pub response_bytes: Size,
    pub header_bytes: Size,
    pub host_bytes: Size,
    pub resources: u32,
    pub log_bytes: Size,
    pub log_bytes_per_second: Size,
    pub outbound_requests: u32,
    #[serde(with = "span")]
    pub request_timeout: Duration,
    #[serde(with = "span")]
    pub startup_timeout: Duration,
    #[serde(with = "span")]
    pub idle_timeout: Duration,
    /// Calls of one function that may wait for a sandbox.
    pub queue: u32,
    #[serde(with = "span")]
    pub queue_timeout: Duration,
    #[serde(with = "span")]
    pub inference_timeout: Duration,
    /// Of a model: how long its graph may stay in memory while nobody holds it.
    #[serde(with = "span")]
    pub keep_alive: Duration,
    /// Of a model: how long its graph may be kept from making room for others.
    #[serde(with = "span")]
    pub min_resident: Duration,
    /// Of a model: rows of one batch.
    pub max_batch: u64,
    /// Of a model: how long an inference may wait for others to ride with.
    #[serde(with = "span")]
    pub max_queue_delay: Duration,
}

impl Default for Maxima {
    fn default() -> Self {
        let model = weir_gpu::ModelLimits::default();
        Self {
            component_bytes: Size::mib(128),
            model_bytes: Size::mib(2048),
            model_memory: Size::bytes(model.memory),
            operator_cost: model.operator_cost,
            memory: Size::mib(1024),
            table_elements: 100_000,
            instances: 100,
            memories: 8,
            tables: 100,
            cpu_time: Duration::from_secs(600),
            request_bytes: Size::mib(64),
            response_bytes: Size::mib(256),
            header_bytes: Size::bytes(256 << 10),
            host_bytes: Size::mib(1024),
            resources: 100_000,
            log_bytes: Size::mib(1),
            log_bytes_per_second: Size::mib(8),
            outbound_requests: 1000,
            request_timeout: Duration::from_secs(600),
            startup_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(24 * 3600),
            queue: 10_000,
            queue_timeout: Duration::from_secs(600),
            inference_timeout: Duration::from_secs(600),
            keep_alive: Duration::from_secs(24 * 3600),
            min_resident: Duration::from_secs(3600),
            max_batch: 1024,
            max_queue_delay: Duration::from_secs(1),
        }
    }
}

/// How uploads are opened: components compiled, models optimised and run once, in a process of their own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreparationConfig {
    /// Uploads that may be prepared at one time.
    pub at_once: NonZeroUsize,
    /// Uploads that may be under way: received, waiting, and prepared.
    pub uploads: NonZeroUsize,
    /// How long one may take, on the clock and on the CPU.
    #[serde(with = "span")]
    pub time: Duration,
    /// The most memory (address space) that one may take.
    pub memory: Size,
}

impl Default for PreparationConfig {
    fn default() -> Self {
        let uploads = NonZeroUsize::MIN.saturating_add(31);
        Self {
            at_once: NonZeroUsize::MIN,
            uploads,
            time: Duration::from_secs(120),
            memory: Size::mib(4 << 10),
        }
    }
}

/// Where outgoing requests of functions may go, beside the public internet.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EgressConfig {
    /// Networks that are reached although they are loopback, private or otherwise not public.
    pub allow: Vec<ipnet::IpNet>,
}

/// What tenants may deploy.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// The policy's document; a relative path begins at the configuration file's folder. No policy when absent.
    pub file: Option<PathBuf>,
}

/// The CPU as a device.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CpuConfig {
    /// Operators that may run at one time; one per core when absent.
    pub lanes: Option<NonZeroUsize>,
    /// The most jobs that may wait for a lane.
    pub queue: usize,
    /// The most memory of all models and jobs on it; a quarter of what this process may have when absent.
    pub memory: Option<Size>,
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self { lanes: None, memory: None, queue: weir_gpu::DeviceConfig::default().queue }
    }
}

/// The GPU as a device.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuConfig {
    pub mode: GpuMode,
    /// Jobs that may run at one time, each on a stream of its own.
    pub lanes: NonZeroUsize,
    /// The most jobs that may wait for a lane.
    pub queue: usize,
    /// The most of its memory; all that is free at the start but a twentieth when absent.
    pub memory: Option<Size>,
    /// The most jobs that may have begun and wait to go on. Each holds a thread, a stream and its memory.
    pub suspended: usize,
    /// The most operators of a job that the host may be ahead of the device.
    pub outstanding: NonZeroUsize,
}

/// Whether there is to be a GPU device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuMode {
    /// If the machine has what it takes.
    #[default]
    Auto,
    /// The server does not start without one.
    Required,
    Off,
}

impl Default for GpuConfig {
    fn default() -> Self {
        let weir_gpu::GpuConfig { lanes, queue, suspended, outstanding, .. } = weir_gpu::GpuConfig::default();
        Self { mode: GpuMode::default(), lanes, queue, memory: None, suspended, outstanding }
    }
}

impl From<&GpuConfig> for weir_gpu::GpuConfig {
    fn from(gpu: &GpuConfig) -> Self {
        let GpuConfig { lanes, queue, memory, suspended, outstanding, .. } = *gpu;
        let memory = memory.map(Size::as_u64);
        Self { lanes, queue, memory, suspended, outstanding, only_with: None }
    }
}

/// What functions may log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// The longest line; longer ones are split.
    pub line_bytes: Size,
    /// The size of a function's log file; it and the full one before it are kept.
    pub file_bytes: Size,
    /// Lines that a follower may be behind before it misses some.
    pub follow_lines: NonZeroUsize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            line_bytes: Size::bytes(8 << 10),
            file_bytes: Size::mib(1),
            follow_lines: NonZeroUsize::MIN.saturating_add(1023),
        }
    }
}

/// The server's own log.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerLogConfig {
    pub format: Format,
}

/// What is kept of functions.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FunctionsConfig {
    /// Revisions of a function; those that get calls, and the one that a rollback goes to, are kept beyond it.
    pub keep_revisions: NonZeroUsize,
}

impl Default for FunctionsConfig {
    fn default() -> Self {
        Self { keep_revisions: NonZeroUsize::MIN.saturating_add(9) }
    }
}

const fn nonzero(value: u32) -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(value - 1)
}

impl Settings {
    /// The settings of a configuration file.
    ///
    /// # Errors
    /// A file that cannot be read, with the name of what is wrong in it.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("the configuration file {} cannot be read", file.display()))?;
        let invalid = || format!("the configuration file {} is not valid", file.display());
        let settings: Self = toml::from_str(&text).with_context(invalid)?;
        settings.check().map_err(anyhow::Error::msg).with_context(invalid)?;
        Ok(settings)
    }

    /// Checks what no type says.
    ///
    /// # Errors
    /// A sentence that names the setting, what was asked and what is allowed.
    fn check(&self) -> Result<(), String> {
        self.tenant.check().map_err(|reason| format!("tenant.{reason}"))?;
        self.scheduling.check()?;
        self.http.check()?;
        self.metering.check()?;
        self.otlp.check()?;
        self.webhook.check()?;
        if self.webhook.url.is_some() && !self.metering.enabled {
            return Err(
                "webhook.url is set and metering.enabled is false: there would be nothing to tell".to_owned()
            );
        }
        let most = self.limits.keep_alive;
        for (field, asked) in
            [("keep_alive", self.models.keep_alive), ("host_keep_alive", self.models.host_keep_alive)]
        {
            if asked > most {
                let (asked, most) = (humantime::format_duration(asked), humantime::format_duration(most));
                return Err(format!("models.{field} is {asked}; limits.keep_alive allows {most}"));
            }
        }
        Ok(())
    }
}

/// The address of something on the web, of a text that is one.
fn web(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    (["http", "https"].contains(&url.scheme()) && url.has_host()).then_some(url)
}

/// The files that say how a server is to be.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// The configuration file. Defaults when absent.
    pub config: Option<PathBuf>,
    /// The policy's document, in place of the one that the configuration file names.
    pub policy: Option<PathBuf>,
}

impl Files {
    /// # Errors
    /// A file that cannot be read, or the name of what is wrong in it.
    pub fn read(&self) -> anyhow::Result<(Settings, Policy)> {
        let config = self.config.as_deref();
        let mut settings = config.map_or_else(|| Ok(Settings::default()), Settings::read)?;
        let folder = config.and_then(Path::parent).unwrap_or(Path::new(""));
        settings.otlp.beside(folder);
        settings.webhook.beside(folder);
        settings.otlp.environment(|name| std::env::var(name).ok()).map_err(anyhow::Error::msg)?;
        settings.otlp.check().map_err(anyhow::Error::msg)?;
        let named = || settings.policy.file.as_ref().map(|file| folder.join(file));
        let policy = self.policy.clone().or_else(named).map(|file| Policy::read(&file));
        Ok((settings, policy.transpose()?.unwrap_or_default()))
    }
}

impl Config {
    /// The configuration of `weir serve`.
    ///
    /// # Errors
    /// With `dev` and an address that others can reach; a configuration file, or its policy, that cannot be read, with the
    /// name of what is wrong in it.
    pub fn new(listen: SocketAddr, data_dir: PathBuf, files: &Files, dev: bool) -> anyhow::Result<Self> {
        if dev && !is_loopback(listen.ip()) {
            bail!(
                "--dev asks nobody for a key, so it listens on loopback addresses only, not on {}",
                listen.ip()
            );
        }
        let (settings, policy) = files.read()?;
        // This very program, also when its file has been replaced since it started. Source: proc(5).
        let binary = PathBuf::from("/proc/self/exe");
        Ok(Self { listen, data_dir, binary, settings, dev, new_operator_key: false, tls: None, policy })
    }
}

/// The memory that this process may have: the machine's, or less where its group is limited. Sources: proc(5),
/// and cgroup v2's `memory.max`.
pub fn available_memory() -> Size {
    let machine = || {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix("kB"))?;
        kib.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let group = || std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?.trim().parse::<u64>().ok();
    let all = [machine(), group()].into_iter().flatten().min();
    all.map_or(Size::mib(2048), Size::bytes)
}

/// Where the parts that a GPU needs may be, beside the usual folders.
pub fn gpu_folders() -> weir_gpu::GpuFolders {
    let folders = |variable: &str| -> Vec<PathBuf> {
        std::env::var_os(variable).map_or(vec![], |value| std::env::split_paths(&value).collect())
    };
    weir_gpu::GpuFolders {
        root: PathBuf::from("/"),
        libraries: folders("LD_LIBRARY_PATH"),
        toolkits: [folders("CUDA_HOME"), folders("CUDA_PATH")].concat(),
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str, dev: bool, file: Option<&Path>) -> Result<Config, String> {
        let files = Files { config: file.map(Path::to_owned), policy: None };
        Config::new(listen.parse().unwrap(), "data".into(), &files, dev).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn dev_stays_on_loopback() {
        assert!(config("0.0.0.0:80", false, None).is_ok_and(|config| !config.dev));
        assert!(config("0.0.0.0:80", true, None).unwrap_err().contains("loopback"));
        assert!(config("[::1]:0", true, None).is_ok());
        assert!(config("[::ffff:127.0.0.1]:0", true, None).is_ok());
    }

    #[test]
    fn unknown_names_and_bad_values_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weir.toml");
        let with = |text: &str| {
            std::fs::write(&file, text).unwrap();
            config("127.0.0.1:0", true, Some(&file))
        };
        let read = with("[sandbox]\nsandboxes = 10\nmemory = \"1GiB\"\nepoch = \"5ms\"").unwrap().settings;
        assert_eq!(read.sandbox.sandboxes.get(), 10);
        assert_eq!(read.sandbox.memory, Some(Size::mib(1024)));
        assert!(with("[sandbox]\nsandboxs = 10").unwrap_err().contains("sandboxs"));
        assert!(with("[sandbox]\nsandboxes = 0").unwrap_err().contains("sandboxes"));
        assert!(with("[sandbox]\nepoch = 5").unwrap_err().contains("epoch"));
        let policy = folder.path().join("policy.toml");
        let missing = with("[policy]\nfile = \"policy.toml\"").unwrap_err();
        assert!(missing.contains(&format!("the policy {} cannot be read", policy.display())), "{missing}");
        std::fs::write(&policy, "[defaults]\nimport = []").unwrap();
        let wrong = with("[policy]\nfile = \"policy.toml\"").unwrap_err();
        assert!(wrong.contains("is not valid") && wrong.contains("`import`"), "{wrong}");
        std::fs::write(&policy, "[defaults]\nimports = []").unwrap();
        assert!(with("[policy]\nfile = \"policy.toml\"").is_ok());
        assert!(with("[egress]\nallow = [\"localhost\"]").unwrap_err().contains("allow"));
        assert!(
            with("[tenant]\nweight = 0").unwrap_err().contains("tenant.weight is 0; it must be 1 to 1000")
        );
        assert!(with("[tenant]\nclass = \"urgent\"").unwrap_err().contains("urgent"));
        assert!(with("[scheduling]\nquantum = \"0s\"").unwrap_err().contains("scheduling.quantum"));
        assert!(with("[scheduling]\neviction = \"fifo\"").unwrap_err().contains("fifo"));
        let shares = with("[scheduling]\nstandard_share = 60\nbatch_share = 41").unwrap_err();
        assert!(shares.contains("standard_share is 60") && shares.contains("100 percent"), "{shares}");
        assert!(with("[functions]\nkeep_revisions = 0").unwrap_err().contains("keep_revisions"));
        assert!(
            with("[http]\ndomain = \"Weir.example\"").unwrap_err().contains("http.domain: `Weir.example`")
        );
        assert!(with("[http]\nhostnames = [\"*\"]").unwrap_err().contains("http.hostnames: `*`"));
        for (wrong, said) in [
            ("segment_bytes = 100", "metering.segment_bytes is 100 bytes; it must be 4 KiB to 1 GiB"),
            ("disk_bytes = \"100MiB\"", "metering.disk_bytes is 100.0 MiB; it must be at least four times"),
            ("sync_interval = \"0s\"", "metering.sync_interval is 0s; it must be more than 0s"),
            ("flush_interval = \"2h\"", "metering.flush_interval is 2h"),
            ("when_full = \"panic\"", "panic"),
        ] {
            let refusal = with(&format!("[metering]\n{wrong}")).unwrap_err();
            assert!(refusal.contains(said), "{refusal}");
        }
        assert!(with("[otlp]\nsample_ratio = 2").unwrap_err().contains("otlp.sample_ratio is 2"));
        assert!(with("[otlp]\nendpoint = \"x:1\"").unwrap_err().contains("otlp.endpoint: `x:1`"));
        assert!(with("[log]\nformat = \"xml\"").unwrap_err().contains("xml"));
        let beside = with("[otlp]\nca = \"ca.pem\"").unwrap().settings.otlp.ca;
        assert_eq!(beside, Some(folder.path().join("ca.pem")));
        for (wrong, said) in [
            ("[webhook]\nurl = \"example.com\"", "webhook.url: `example.com` is not understood"),
            ("[webhook]\nrows = 0", "webhook.timeout and webhook.rows must be more"),
            ("[webhook]\nurl = \"http://a\"\n[metering]\nenabled = false", "there would be nothing to tell"),
        ] {
            let refusal = with(wrong).unwrap_err();
            assert!(refusal.contains(said), "{refusal}");
        }
        let keeps = with("[models]\nkeep_alive = \"2days\"").unwrap_err();
        assert!(keeps.contains("models.keep_alive is 2days; limits.keep_alive allows 1day"), "{keeps}");
    }

    #[test]
    fn the_documented_example_is_the_default() {
        let written = toml::to_string(&Settings::default()).unwrap();
        let example = include_str!("../../docs/weir.toml");
        let example: toml::Table = toml::from_str(example).unwrap();
        assert_eq!(example, toml::from_str::<toml::Table>(&written).unwrap());
    }
}
