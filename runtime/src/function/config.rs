//! A function's own configuration, as it comes with a deploy.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Settings;
use crate::name::Name;
use crate::units::{Size, span};

/// What a function may use and how it is run. Every value has a default; unknown names are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FunctionConfig {
    /// Models that it may open, by name.
    pub models: Vec<String>,
    /// Whether it may load models from bytes of its own.
    pub allow_model_bytes: bool,
    /// Where its models run.
    pub device: Device,
    /// How urgent its inferences are.
    pub class: Class,
    /// Its environment; nothing else is in it.
    pub env: BTreeMap<String, String>,
    pub limits: Limits,
    /// Calls that may run at one time.
    pub max_concurrency: NonZeroU32,
    /// Calls that may wait while so many run.
    pub max_queue: u32,
    /// How long without calls before nothing of it is left in memory.
    #[serde(with = "span")]
    pub idle_timeout: Duration,
    /// How long a call is held while the function wakes.
    #[serde(with = "span")]
    pub startup_timeout: Duration,
    /// How long one call may take, from its sandbox's start to its last byte.
    #[serde(with = "span")]
    pub request_timeout: Duration,
    /// Calls that one sandbox may serve, one after another. 1 is a fresh sandbox for every call.
    pub reuse: NonZeroU32,
}

/// What each of the function's calls may hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Linear memory of a sandbox.
    pub memory: Size,
    pub request_bytes: Size,
    pub response_bytes: Size,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    #[default]
    Cpu,
    Gpu,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Critical,
    #[default]
    Standard,
    Batch,
}

impl From<Device> for weir_gpu::DeviceKind {
    fn from(device: Device) -> Self {
        match device {
            Device::Cpu => Self::Cpu,
            Device::Gpu => Self::Gpu,
        }
    }
}

impl From<Class> for weir_gpu::Class {
    fn from(class: Class) -> Self {
        match class {
            Class::Critical => Self::Critical,
            Class::Standard => Self::Standard,
            Class::Batch => Self::Batch,
        }
    }
}

impl Default for FunctionConfig {
    fn default() -> Self {
        Self {
            models: vec![],
            allow_model_bytes: false,
            device: Device::default(),
            class: Class::default(),
            env: BTreeMap::new(),
            limits: Limits::default(),
            max_concurrency: NonZeroU32::MIN.saturating_add(63),
            max_queue: 1000,
            idle_timeout: Duration::from_secs(30),
            startup_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            reuse: NonZeroU32::MIN,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: Size::mib(256), request_bytes: Size::mib(16), response_bytes: Size::mib(64) }
    }
}

impl FunctionConfig {
    /// Checks the configuration against what the operator allows.
    ///
    /// # Errors
    /// A sentence that names the field, what was asked and what is allowed.
    pub fn check(&self, settings: &Settings) -> Result<(), String> {
        let Settings { sandbox, limits, .. } = settings;
        at_most("limits.memory", self.limits.memory, sandbox.max_memory)?;
        at_most("limits.request_bytes", self.limits.request_bytes, limits.request_bytes)?;
        at_most("limits.response_bytes", self.limits.response_bytes, limits.response_bytes)?;
        at_most("max_concurrency", self.max_concurrency, sandbox.sandboxes)?;
        at_most("max_queue", self.max_queue, limits.queue)?;
        let spans = [
            ("idle_timeout", self.idle_timeout, limits.idle_timeout),
            ("startup_timeout", self.startup_timeout, limits.startup_timeout),
            ("request_timeout", self.request_timeout, limits.request_timeout),
        ];
        for (field, asked, most) in spans {
            if asked.is_zero() {
                return Err(format!("{field} must be longer than nothing"));
            }
            if asked > most {
                let (asked, most) = (humantime::format_duration(asked), humantime::format_duration(most));
                return Err(format!("{field} is {asked}; the most here is {most}"));
            }
        }
        for name in &self.models {
            Name::model(name).map_err(|reason| format!("models: {reason}"))?;
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(format!(
                    "env: `{name}` cannot be an environment variable's name, or its value has a NUL"
                ));
            }
        }
        Ok(())
    }
}

fn at_most<T: PartialOrd + std::fmt::Display>(field: &str, asked: T, most: T) -> Result<(), String> {
    if asked <= most { Ok(()) } else { Err(format!("{field} is {asked}; the most here is {most}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        match serde_json::from_str::<FunctionConfig>(json) {
            Ok(config) => config.check(&Settings::default()).unwrap_err(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn refusals_name_the_field() {
        assert!(refusal(r#"{"modles": []}"#).contains("modles"));
        assert!(refusal(r#"{"idle_timeout": 30}"#).contains("expected a string"));
        assert!(refusal(r#"{"idle_timeout": "thirty"}"#).contains("`thirty` is not a duration"));
        assert!(refusal(r#"{"max_concurrency": 0}"#).contains("nonzero"));
        assert!(refusal(r#"{"reuse": 0}"#).contains("nonzero"));
        assert!(refusal(r#"{"device": "tpu"}"#).contains("`tpu`"));
        assert_eq!(
            refusal(r#"{"limits": {"memory": "2GiB"}}"#),
            "limits.memory is 2.0 GiB; the most here is 1.0 GiB"
        );
        assert_eq!(refusal(r#"{"request_timeout": "1h"}"#), "request_timeout is 1h; the most here is 10m");
        assert_eq!(refusal(r#"{"startup_timeout": "0s"}"#), "startup_timeout must be longer than nothing");
        assert!(refusal(r#"{"models": ["../x"]}"#).contains("models: "));
        assert!(refusal(r#"{"env": {"A=B": "c"}}"#).contains("`A=B`"));
    }

    #[test]
    fn a_configuration_survives_being_written() {
        let config: FunctionConfig = serde_json::from_str(
            r#"{"limits": {"memory": 1000001}, "idle_timeout": "1m 30s", "class": "batch"}"#,
        )
        .unwrap();
        let written = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<FunctionConfig>(&written).unwrap(), config);
    }
}
