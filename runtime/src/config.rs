//! What the operator sets. The only place that reads configuration files, flags and environment of the server; what
//! comes out is typed and checked, and nothing past here looks again.

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::units::{Size, span};

/// Everything that a server is started with.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    /// Where functions, models and logs live.
    pub data_dir: PathBuf,
    pub settings: Settings,
}

/// The configuration file (TOML). Every value has a default, and an unknown name is an error.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How long requests under way may take to end when the server is told to stop.
    #[serde(with = "span")]
    pub stop_timeout: Duration,
    pub sandbox: SandboxConfig,
    pub limits: Maxima,
    pub cpu: CpuConfig,
    pub logs: LogConfig,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            stop_timeout: Duration::from_secs(30),
            sandbox: SandboxConfig::default(),
            limits: Maxima::default(),
            cpu: CpuConfig::default(),
            logs: LogConfig::default(),
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
    /// The most linear memory that a function's configuration may ask for.
    pub max_memory: Size,
    /// The most elements of one table.
    pub table_elements: usize,
    /// Memory of a slot that is cleared and kept when its sandbox ends, instead of being given back to the system.
    pub keep_resident: Size,
    /// How often a spinning guest yields its thread.
    #[serde(with = "span")]
    pub epoch: Duration,
    /// Components and models that may be prepared at one time.
    pub preparations: NonZeroUsize,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            sandboxes: nonzero(1000),
            parts: nonzero(4),
            max_memory: Size::mib(1024),
            table_elements: 50_000,
            keep_resident: Size::mib(2),
            epoch: Duration::from_millis(10),
            preparations: NonZeroUsize::MIN,
        }
    }
}

/// The most that uploads and a function's configuration may ask for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Maxima {
    pub component_bytes: Size,
    pub model_bytes: Size,
    pub request_bytes: Size,
    pub response_bytes: Size,
    #[serde(with = "span")]
    pub request_timeout: Duration,
    #[serde(with = "span")]
    pub startup_timeout: Duration,
    #[serde(with = "span")]
    pub idle_timeout: Duration,
    /// Calls of one function that may wait for a sandbox.
    pub queue: u32,
}

impl Default for Maxima {
    fn default() -> Self {
        Self {
            component_bytes: Size::mib(128),
            model_bytes: Size::mib(2048),
            request_bytes: Size::mib(64),
            response_bytes: Size::mib(256),
            request_timeout: Duration::from_secs(600),
            startup_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(24 * 3600),
            queue: 10_000,
        }
    }
}

/// The CPU as a device.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CpuConfig {
    /// Operators that may run at one time; one per core when absent.
    pub lanes: Option<NonZeroUsize>,
    /// The most jobs that may wait for a lane.
    pub queue: usize,
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self { lanes: None, queue: weir_gpu::DeviceConfig::default().queue }
    }
}

/// What functions may log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// The longest line; longer ones are split.
    pub line_bytes: Size,
    /// The most that one call may log.
    pub call_bytes: Size,
    /// The size of a function's log file; it and the full one before it are kept.
    pub file_bytes: Size,
    /// Lines that a follower may be behind before it misses some.
    pub follow_lines: NonZeroUsize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            line_bytes: Size::bytes(8 << 10),
            call_bytes: Size::bytes(64 << 10),
            file_bytes: Size::mib(1),
            follow_lines: NonZeroUsize::MIN.saturating_add(1023),
        }
    }
}

const fn nonzero(value: u32) -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(value - 1)
}

impl Config {
    /// The configuration of `weir serve`.
    ///
    /// # Errors
    /// Without `dev`, because tenants cannot be told apart yet; with `dev` and an address that others can reach; a
    /// configuration file that cannot be read, with the name of what is wrong in it.
    pub fn new(
        listen: SocketAddr,
        data_dir: PathBuf,
        file: Option<&Path>,
        dev: bool,
    ) -> anyhow::Result<Self> {
        if !dev {
            bail!(
                "there are no keys yet, so callers cannot be told apart: start with --dev, which serves the tenant \
                 `default` on a loopback address only"
            );
        }
        if !is_loopback(listen.ip()) {
            bail!(
                "--dev asks nobody for a key, so it listens on loopback addresses only, not on {}",
                listen.ip()
            );
        }
        let settings = match file {
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("the configuration file {} cannot be read", file.display()))?;
                toml::from_str(&text)
                    .with_context(|| format!("the configuration file {} is not valid", file.display()))?
            }
            None => Settings::default(),
        };
        Ok(Self { listen, data_dir, settings })
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str, dev: bool, file: Option<&Path>) -> Result<Config, String> {
        Config::new(listen.parse().unwrap(), "data".into(), file, dev).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn dev_is_needed_and_stays_on_loopback() {
        assert!(config("127.0.0.1:0", false, None).unwrap_err().contains("--dev"));
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
        let read =
            with("[sandbox]\nsandboxes = 10\nmax_memory = \"1GiB\"\nepoch = \"5ms\"").unwrap().settings;
        assert_eq!(read.sandbox.sandboxes.get(), 10);
        assert_eq!(read.sandbox.max_memory, Size::mib(1024));
        assert!(with("[sandbox]\nsandboxs = 10").unwrap_err().contains("sandboxs"));
        assert!(with("[sandbox]\nsandboxes = 0").unwrap_err().contains("sandboxes"));
        assert!(with("[sandbox]\nepoch = 5").unwrap_err().contains("epoch"));
    }

    #[test]
    fn the_documented_example_is_the_default() {
        let written = toml::to_string(&Settings::default()).unwrap();
        let example = include_str!("../../docs/weir.toml");
        let example: toml::Table = toml::from_str(example).unwrap();
        assert_eq!(example, toml::from_str::<toml::Table>(&written).unwrap());
    }
}
