//! A function's own configuration, as it comes with a deploy.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Settings;
use crate::hosts::check_host;
use crate::name::Name;
use crate::rates::Rate;
use crate::sandbox::egress::HostPattern;
use crate::schema::{HostNameText, HostText, ModelText, SpanText};
use crate::units::{Size, span};

/// What a function may use and how it is run. Every value has a default; unknown names are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FunctionConfig {
    /// Whether it may be called without a key.
    pub public: bool,
    /// Host names that it has of its own, of those that the operator lets functions have.
    #[schemars(with = "Vec<HostNameText>", length(max = 16))]
    pub hostnames: Vec<String>,
    /// Models that it may open, by name.
    #[schemars(with = "Vec<ModelText>")]
    pub models: Vec<String>,
    /// Whether it may load models from bytes of its own.
    pub allow_model_bytes: bool,
    /// Where its models run.
    pub device: Device,
    /// How urgent its inferences are: the most that its tenant may ask for; standard, or what its tenant may have if that is
    /// less, when absent.
    pub class: Option<Class>,
    /// Whether its inferences may ride in one batch with others'.
    pub isolation: Isolation,
    /// Its environment; nothing else is in it.
    pub env: BTreeMap<String, String>,
    /// Hosts that it may send requests to.
    #[schemars(with = "Vec<HostText>")]
    pub egress: Vec<HostPattern>,
    /// What each of its sandboxes, and each of its calls, may have.
    pub limits: Limits,
    /// Calls that may run at one time.
    pub max_concurrency: NonZeroU32,
    /// Calls that may wait while so many run.
    pub max_queue: u32,
    /// Calls in a second; as many as come when absent. Its tenant's rate holds beside it.
    pub calls_per_second: Option<NonZeroU32>,
    /// Calls at once after a pause; as many as in a second when absent.
    pub call_burst: Option<NonZeroU32>,
    /// How long without calls before nothing of it is left in memory.
    #[serde(with = "span")]
    #[schemars(with = "SpanText")]
    pub idle_timeout: Duration,
    /// How long a call is held while the function wakes.
    #[serde(with = "span")]
    #[schemars(with = "SpanText")]
    pub startup_timeout: Duration,
    /// How long one call may take, from its sandbox's start to its last byte.
    #[serde(with = "span")]
    #[schemars(with = "SpanText")]
    pub request_timeout: Duration,
    /// How long one inference may wait for a lane; only the call's own end ends the wait when absent.
    #[serde(with = "span::optional")]
    #[schemars(with = "Option<SpanText>")]
    pub queue_timeout: Option<Duration>,
    /// How long one inference may take, its wait for a lane included; only the call's own end ends it when absent.
    #[serde(with = "span::optional")]
    #[schemars(with = "Option<SpanText>")]
    pub inference_timeout: Option<Duration>,
    /// Calls that one sandbox may serve, one after another. 1 is a fresh sandbox for every call.
    pub reuse: NonZeroU32,
}

/// What each of the function's sandboxes, and each of its calls, may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Linear memory of a sandbox.
    pub memory: Size,
    /// Elements of a sandbox's tables.
    pub table_elements: u32,
    /// Core instances that the component is made of.
    pub instances: u32,
    /// Linear memories that the component has.
    pub memories: u32,
    /// Tables that the component has.
    pub tables: u32,
    /// How long a call may compute. Waiting does not count.
    #[serde(with = "span")]
    #[schemars(with = "SpanText")]
    pub cpu_time: Duration,
    /// A request's body.
    pub request_bytes: Size,
    /// An answer's body.
    pub response_bytes: Size,
    /// One set of headers: a request's, an answer's, or those that a guest makes.
    pub header_bytes: Size,
    /// What the host keeps for a sandbox: tensors, headers, bytes on their way.
    pub host_bytes: Size,
    /// Handles that a guest holds at one time.
    pub resources: u32,
    /// What one call may log.
    pub log_bytes: Size,
    /// What the function may log per second, and at once after a second of silence.
    pub log_bytes_per_second: Size,
    /// Outgoing requests of one call.
    pub outbound_requests: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    #[default]
    Cpu,
    Gpu,
}

/// How urgent inferences are, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Critical,
    #[default]
    Standard,
    Batch,
}

impl Class {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Standard => "standard",
            Self::Batch => "batch",
        }
    }
}

/// Who rides with whom, where a model's inferences are run in batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// With any that fit.
    #[default]
    Shared,
    /// With none: each inference is a run of its own.
    DedicatedBatch,
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
            public: false,
            hostnames: vec![],
            models: vec![],
            allow_model_bytes: false,
            device: Device::default(),
            class: None,
            isolation: Isolation::default(),
            env: BTreeMap::new(),
            egress: vec![],
            limits: Limits::default(),
            max_concurrency: NonZeroU32::MIN.saturating_add(63),
            max_queue: 1000,
            calls_per_second: None,
            call_burst: None,
            idle_timeout: Duration::from_secs(30),
            startup_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            queue_timeout: None,
            inference_timeout: None,
            reuse: NonZeroU32::MIN,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: Size::mib(256),
            table_elements: 50_000,
            instances: 32,
            memories: 4,
            tables: 32,
            cpu_time: Duration::from_secs(10),
            request_bytes: Size::mib(16),
            response_bytes: Size::mib(64),
            header_bytes: Size::bytes(64 << 10),
            host_bytes: Size::mib(128),
            resources: 1000,
            log_bytes: Size::bytes(64 << 10),
            log_bytes_per_second: Size::bytes(256 << 10),
            outbound_requests: 16,
        }
    }
}

/// The most that an environment may take, for every sandbox has its own; and what each variable takes beside its text.
const ENV_BYTES: usize = 64 << 10;
const ENV_ENTRY: usize = 64;

/// The most host names of one function.
const HOSTNAMES: usize = 16;

impl FunctionConfig {
    /// Checks the configuration against what the operator allows.
    ///
    /// # Errors
    /// A sentence that names the field, what was asked and what is allowed.
    pub fn check(&self, settings: &Settings) -> Result<(), String> {
        let (asked, most) = (&self.limits, &settings.limits);
        for (field, asked, most) in [
            ("memory", asked.memory, most.memory),
            ("request_bytes", asked.request_bytes, most.request_bytes),
            ("response_bytes", asked.response_bytes, most.response_bytes),
            ("header_bytes", asked.header_bytes, most.header_bytes),
            ("host_bytes", asked.host_bytes, most.host_bytes),
            ("log_bytes", asked.log_bytes, most.log_bytes),
            ("log_bytes_per_second", asked.log_bytes_per_second, most.log_bytes_per_second),
        ] {
            at_most(&format!("limits.{field}"), asked, most)?;
        }
        for (field, asked, most) in [
            ("limits.table_elements", asked.table_elements, most.table_elements),
            ("limits.instances", asked.instances, most.instances),
            ("limits.memories", asked.memories, most.memories),
            ("limits.tables", asked.tables, most.tables),
            ("limits.resources", asked.resources, most.resources),
            ("limits.outbound_requests", asked.outbound_requests, most.outbound_requests),
            ("max_queue", self.max_queue, most.queue),
        ] {
            at_most(field, asked, most)?;
        }
        let spans = [
            ("limits.cpu_time", Some(asked.cpu_time), most.cpu_time),
            ("idle_timeout", Some(self.idle_timeout), most.idle_timeout),
            ("startup_timeout", Some(self.startup_timeout), most.startup_timeout),
            ("request_timeout", Some(self.request_timeout), most.request_timeout),
            ("queue_timeout", self.queue_timeout, most.queue_timeout),
            ("inference_timeout", self.inference_timeout, most.inference_timeout),
        ];
        for (field, asked, most) in spans {
            let Some(asked) = asked else { continue };
            if asked.is_zero() {
                return Err(format!("{field} must be longer than nothing"));
            }
            span_at_most(field, asked, most)?;
        }
        at_most("hostnames", self.hostnames.len(), HOSTNAMES)?;
        for name in &self.hostnames {
            check_host(name).map_err(|reason| format!("hostnames: {reason}"))?;
        }
        if self.call_burst.is_some() && self.calls_per_second.is_none() {
            return Err("call_burst says nothing without calls_per_second".to_owned());
        }
        for name in &self.models {
            Name::model(name).map_err(|reason| format!("models: {reason}"))?;
        }
        let env: usize = self.env.iter().map(|(name, value)| ENV_ENTRY + name.len() + value.len()).sum();
        if env > ENV_BYTES {
            return Err(format!(
                "env takes {env} bytes, {ENV_ENTRY} for each variable among them; the most is {ENV_BYTES}"
            ));
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

    /// How often it may be called, if there is a bound.
    pub fn rate(&self) -> Option<Rate> {
        Rate::new(self.calls_per_second, self.call_burst)
    }
}

/// # Errors
/// A sentence that names the field, what was asked and what is allowed.
pub fn at_most<T: PartialOrd + std::fmt::Display>(field: &str, asked: T, most: T) -> Result<(), String> {
    if asked <= most { Ok(()) } else { Err(format!("{field} is {asked}; the most here is {most}")) }
}

/// # Errors
/// A sentence that names the field, what was asked and what is allowed.
pub fn span_at_most(field: &str, asked: Duration, most: Duration) -> Result<(), String> {
    if asked <= most {
        return Ok(());
    }
    let (asked, most) = (humantime::format_duration(asked), humantime::format_duration(most));
    Err(format!("{field} is {asked}; the most here is {most}"))
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
        assert!(refusal(r#"{"idle_timeout": 30}"#).contains("expected a duration with a unit"));
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
        assert_eq!(refusal(r#"{"queue_timeout": "0s"}"#), "queue_timeout must be longer than nothing");
        assert!(refusal(r#"{"calls_per_second": 0}"#).contains("nonzero"));
        assert!(refusal(r#"{"call_burst": 3}"#).contains("calls_per_second"));
        assert_eq!(refusal(r#"{"queue_timeout": "1h"}"#), "queue_timeout is 1h; the most here is 10m");
        assert_eq!(
            refusal(r#"{"inference_timeout": "1h"}"#),
            "inference_timeout is 1h; the most here is 10m"
        );
        assert!(refusal(r#"{"inference_timeout": 5}"#).contains("expected a duration with a unit"));
        assert!(refusal(r#"{"isolation": "alone"}"#).contains("`alone`"));
        assert_eq!(
            refusal(r#"{"limits": {"resources": 100001}}"#),
            "limits.resources is 100001; the most here is 100000"
        );
        assert_eq!(
            refusal(r#"{"limits": {"cpu_time": "1h"}}"#),
            "limits.cpu_time is 1h; the most here is 10m"
        );
        assert!(refusal(r#"{"egress": ["http://example.com"]}"#).contains("`http://example.com`"));
        assert!(refusal(r#"{"models": ["../x"]}"#).contains("models: "));
        assert!(refusal(r#"{"env": {"A=B": "c"}}"#).contains("`A=B`"));
        assert!(refusal(r#"{"hostnames": ["localhost"]}"#).contains("hostnames: `localhost`"));
        let many = serde_json::json!({ "hostnames": vec!["a.b"; 17] }).to_string();
        assert_eq!(refusal(&many), "hostnames is 17; the most here is 16");
        let long = "x".repeat(64 << 10);
        assert!(refusal(&format!(r#"{{"env": {{"A": "{long}"}}}}"#)).contains("env takes 65601 bytes"));
    }

    #[test]
    fn a_configuration_survives_being_written() {
        let config: FunctionConfig = serde_json::from_str(
            r#"{"limits": {"memory": 1000001}, "idle_timeout": "1m 30s", "class": "batch",
                "isolation": "dedicated-batch", "queue_timeout": "50ms", "inference_timeout": null}"#,
        )
        .unwrap();
        assert_eq!(config.isolation, Isolation::DedicatedBatch);
        assert_eq!((config.queue_timeout, config.inference_timeout), (Some(Duration::from_millis(50)), None));
        let written = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<FunctionConfig>(&written).unwrap(), config);
    }
}
