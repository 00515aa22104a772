//! Where traces, metrics and logs are sent, by OpenTelemetry's protocol; and what its standard environment variables say.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::units::{Size, span};

/// The exporter.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpConfig {
    /// Where the receiver is, `http://` or `https://`. Nothing is exported when absent.
    pub endpoint: Option<String>,
    /// The same for one signal; as it is written, so over HTTP with its path.
    pub traces_endpoint: Option<String>,
    pub metrics_endpoint: Option<String>,
    pub logs_endpoint: Option<String>,
    pub protocol: Protocol,
    /// What is sent.
    pub traces: bool,
    pub metrics: bool,
    pub logs: bool,
    /// Headers of each request. Those of the file come on top, one a line, `name: value`.
    pub headers: BTreeMap<String, String>,
    pub headers_file: Option<PathBuf>,
    /// Certificates of authorities (PEM) that the receiver's must be of, in place of the public ones.
    pub ca: Option<PathBuf>,
    /// How long a request may take.
    #[serde(with = "span")]
    pub timeout: Duration,
    /// How long a batch is tried again where the receiver cannot take it now.
    #[serde(with = "span")]
    pub retry_for: Duration,
    /// How long a stop waits for what is still to be sent.
    #[serde(with = "span")]
    pub flush_timeout: Duration,
    /// How often metrics are sent.
    #[serde(with = "span")]
    pub metrics_interval: Duration,
    /// How long what is to be sent waits for more.
    #[serde(with = "span")]
    pub delay: Duration,
    /// The most that waits of each signal, calls, log records or sets of metrics, and its bytes; what comes then is dropped.
    pub queue: NonZeroUsize,
    pub queue_bytes: Size,
    /// The most of those that are sent at one time, and their bytes.
    pub batch: NonZeroUsize,
    pub batch_bytes: Size,
    /// Which part of the traces that begin here is kept, 0 to 1.
    pub sample_ratio: f64,
    /// Spans beneath a call's own.
    pub spans: usize,
    /// Lines of the function's log that are in a call's trace, and their bytes.
    pub lines: usize,
    pub line_bytes: Size,
    /// Whether traces say from which address a call came.
    pub client_address: bool,
    pub service_name: String,
    /// Attributes of all that is sent.
    pub resource: BTreeMap<String, String>,
    /// Headers of the environment: they may be secrets, and are not shown.
    #[serde(skip)]
    pub secret_headers: Secret,
}

/// How it is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    #[default]
    Grpc,
    /// HTTP with the same messages, `http/protobuf`.
    Http,
}

/// Names and values that are not shown.
#[derive(Clone, Default)]
pub struct Secret(pub BTreeMap<String, String>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Default for OtlpConfig {
    fn default() -> Self {
        let some = |number: usize| NonZeroUsize::MIN.saturating_add(number - 1);
        Self {
            endpoint: None,
            traces_endpoint: None,
            metrics_endpoint: None,
            logs_endpoint: None,
            protocol: Protocol::default(),
            traces: true,
            metrics: true,
            logs: true,
            headers: BTreeMap::new(),
            headers_file: None,
            ca: None,
            timeout: Duration::from_secs(10),
            retry_for: Duration::from_secs(60),
            flush_timeout: Duration::from_secs(5),
            metrics_interval: Duration::from_secs(60),
            delay: Duration::from_secs(1),
            queue: some(8192),
            queue_bytes: Size::mib(32),
            batch: some(512),
            batch_bytes: Size::mib(1),
            sample_ratio: 1.0,
            spans: 128,
            lines: 128,
            line_bytes: Size::bytes(16 << 10),
            client_address: false,
            service_name: "weir".to_owned(),
            resource: BTreeMap::new(),
            secret_headers: Secret::default(),
        }
    }
}

impl OtlpConfig {
    /// What the standard environment variables say holds over what the file says. Source: OpenTelemetry's specification of
    /// the exporter and of the SDK's environment variables.
    ///
    /// # Errors
    /// A sentence that names the variable whose value is not understood.
    pub(super) fn environment(&mut self, variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
        // One that is empty is as one that is not there.
        let variable =
            |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let wrong =
            |name: &str, text: &str, expected: &str| format!("{name} is `{text}`; expected {expected}");
        for (name, place) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &mut self.endpoint),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &mut self.traces_endpoint),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", &mut self.metrics_endpoint),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", &mut self.logs_endpoint),
        ] {
            *place = variable(name).or(place.take());
        }
        for (name, place) in [
            ("OTEL_TRACES_EXPORTER", &mut self.traces),
            ("OTEL_METRICS_EXPORTER", &mut self.metrics),
            ("OTEL_LOGS_EXPORTER", &mut self.logs),
        ] {
            match variable(name).as_deref() {
                None => {}
                Some("otlp") => *place = true,
                Some("none") => *place = false,
                Some(other) => return Err(wrong(name, other, "`otlp` or `none`")),
            }
        }
        let protocol = "OTEL_EXPORTER_OTLP_PROTOCOL";
        match variable(protocol).as_deref() {
            None => {}
            Some("grpc") => self.protocol = Protocol::Grpc,
            Some("http/protobuf") => self.protocol = Protocol::Http,
            Some(other) => return Err(wrong(protocol, other, "`grpc` or `http/protobuf`")),
        }
        let timeout = "OTEL_EXPORTER_OTLP_TIMEOUT";
        if let Some(text) = variable(timeout) {
            let millis = text.parse().map_err(|_| wrong(timeout, &text, "milliseconds"))?;
            self.timeout = Duration::from_millis(millis);
        }
        self.ca = variable("OTEL_EXPORTER_OTLP_CERTIFICATE").map(PathBuf::from).or(self.ca.take());
        // Its value may be a secret, so the sentence does not show it.
        let headers = "OTEL_EXPORTER_OTLP_HEADERS";
        if let Some(text) = variable(headers) {
            let pairs = pairs(&text).ok_or(format!("{headers} is not `name=value,name=value`"))?;
            self.secret_headers = Secret(pairs);
        }
        let resource = "OTEL_RESOURCE_ATTRIBUTES";
        if let Some(text) = variable(resource) {
            let mut pairs = pairs(&text).ok_or_else(|| wrong(resource, &text, "`name=value,name=value`"))?;
            self.service_name = pairs.remove("service.name").unwrap_or_else(|| self.service_name.clone());
            self.resource.extend(pairs);
        }
        self.service_name = variable("OTEL_SERVICE_NAME").unwrap_or_else(|| self.service_name.clone());
        let (sampler, argument) = ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG");
        match variable(sampler).as_deref() {
            None => {}
            Some("parentbased_always_on") => self.sample_ratio = 1.0,
            Some("parentbased_always_off") => self.sample_ratio = 0.0,
            Some("parentbased_traceidratio") => {
                let text = variable(argument).unwrap_or_else(|| "1".to_owned());
                self.sample_ratio =
                    text.parse().map_err(|_| wrong(argument, &text, "a number from 0 to 1"))?;
            }
            Some(other) => {
                let expected =
                    "`parentbased_always_on`, `parentbased_always_off` or `parentbased_traceidratio`";
                return Err(wrong(sampler, other, expected));
            }
        }
        if variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            [self.traces, self.metrics, self.logs] = [false; 3];
        }
        Ok(())
    }

    /// Has relative paths begin at a folder.
    pub(super) fn beside(&mut self, folder: &Path) {
        for path in [&mut self.headers_file, &mut self.ca].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }

    /// Checks what no type says.
    pub(super) fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            return Err(format!("otlp.sample_ratio is {}; it must be 0 to 1", self.sample_ratio));
        }
        if self.timeout.is_zero() || self.delay.is_zero() || self.metrics_interval.is_zero() {
            let spans = "otlp.timeout, otlp.delay and otlp.metrics_interval";
            return Err(format!("{spans} must be more than nothing"));
        }
        for (setting, endpoint) in [
            ("endpoint", &self.endpoint),
            ("traces_endpoint", &self.traces_endpoint),
            ("metrics_endpoint", &self.metrics_endpoint),
            ("logs_endpoint", &self.logs_endpoint),
        ] {
            let Some(endpoint) = endpoint else { continue };
            if super::web(endpoint).is_none_or(|url| url.query().is_some()) {
                let expected = "write it as http://HOST:PORT or https://HOST:PORT";
                return Err(format!(
                    "otlp.{setting}: `{}` is not understood; {expected}",
                    endpoint.escape_default()
                ));
            }
        }
        for (name, value) in self.headers.iter().chain(&self.secret_headers.0) {
            header(name, value).map_err(|reason| format!("otlp.headers: {reason}"))?;
        }
        Ok(())
    }
}

/// A header of requests to the receiver. What is wrong with a value does not show it.
///
/// # Errors
/// A sentence that names the header.
pub fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let header = name.parse::<HeaderName>().map_err(|_| format!("`{}` is no name", name.escape_default()))?;
    let mut value = HeaderValue::from_str(value)
        .ok()
        .filter(|value| value.to_str().is_ok())
        .ok_or_else(|| format!("the value of `{header}` is not text"))?;
    value.set_sensitive(true);
    Ok((header, value))
}

/// `name=value,name=value`, values percent-encoded.
fn pairs(text: &str) -> Option<BTreeMap<String, String>> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.trim().to_owned(), decoded(value.trim())?))
    };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(pair).collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<OtlpConfig, String> {
        let mut config = OtlpConfig::default();
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        config.environment(find)?;
        config.check()?;
        Ok(config)
    }

    #[test]
    fn the_environment_says_what_its_specification_says() {
        let config = with(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "https://logs.example/in"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc, x-team = a%2Cb,"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod,service.name=other"),
            ("OTEL_SERVICE_NAME", "edge"),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ]);
        let config = config.unwrap();
        assert_eq!(config.endpoint.as_deref(), Some("http://collector:4318"));
        assert_eq!(config.logs_endpoint.as_deref(), Some("https://logs.example/in"));
        assert_eq!((config.protocol, config.timeout), (Protocol::Http, Duration::from_millis(2500)));
        assert_eq!(config.secret_headers.0["authorization"], "Bearer abc");
        assert_eq!(config.secret_headers.0["x-team"], "a,b");
        assert!(!format!("{config:?}").contains("abc"), "a secret is not shown");
        assert_eq!(config.ca.as_deref(), Some(Path::new("/ca.pem")));
        assert_eq!((config.service_name.as_str(), config.resource.len()), ("edge", 1));
        assert_eq!((config.traces, config.metrics, config.logs), (true, false, true));
        assert!((config.sample_ratio - 0.25).abs() < f64::EPSILON);
        let off = with(&[("OTEL_SDK_DISABLED", "TRUE")]).unwrap();
        assert_eq!((off.traces, off.metrics, off.logs), (false, false, false));
        let empty = with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " "), ("OTEL_SERVICE_NAME", "")]).unwrap();
        assert_eq!((empty.endpoint, empty.service_name.as_str()), (None, "weir"));
    }

    #[test]
    fn what_is_wrong_in_the_environment_is_named_and_secrets_are_not_shown() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_SAMPLER", "always_on"),
            ("OTEL_RESOURCE_ATTRIBUTES", "nothing"),
        ] {
            let error = with(&[(name, value)]).unwrap_err();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
        for value in ["s3cret", "a=s3cret%zz", "a b=s3cret", "a=s3cret%0A"] {
            let error = with(&[("OTEL_EXPORTER_OTLP_HEADERS", value)]).unwrap_err();
            assert!(!error.contains("s3cret"), "{error}");
        }
        for endpoint in ["collector:4317", "ftp://x", "http://", "http://x/?a=b"] {
            let error = with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]).unwrap_err();
            assert!(error.contains("otlp.endpoint"), "{error}");
        }
    }
}
