//! How a batch goes to the receiver: over gRPC, or as a request of HTTP. Both carry the same bytes.

use std::time::Duration;

use anyhow::Context as _;
use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Uri, header};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use super::retry::{self, Refused};
use super::signal::Route;
use crate::config::otlp::header;
use crate::config::{OtlpConfig, Protocol};
use crate::receiver::{self, chain};

/// The setting of the authorities.
const CA: &str = "otlp.ca";
/// The most bytes of an answer that are read.
const ANSWER: usize = 64 << 10;
/// The most of an answer's text that is repeated in the log.
const TEXT: usize = 512;

/// What the receiver says of a batch that it has taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Spans, log records or points that it has not.
    pub rejected: u64,
    pub message: String,
}

/// The way to the receiver of one signal.
pub enum Transport {
    Grpc(Box<Rpc>),
    Http { client: reqwest::Client, url: String },
}

/// A method of gRPC, and what goes with each request.
pub struct Rpc {
    client: Grpc<Channel>,
    path: PathAndQuery,
    metadata: MetadataMap,
}

impl Transport {
    /// # Errors
    /// An endpoint or a file that cannot be used.
    pub fn new(config: &OtlpConfig, route: &Route) -> anyhow::Result<Option<Self>> {
        let own = match route.signal {
            "traces" => &config.traces_endpoint,
            "metrics" => &config.metrics_endpoint,
            _ => &config.logs_endpoint,
        };
        let Some(endpoint) = own.as_ref().or(config.endpoint.as_ref()) else { return Ok(None) };
        let headers = headers(config)?;
        let ca = receiver::authorities(config.ca.as_deref(), CA)?;
        let transport = match config.protocol {
            Protocol::Grpc => Self::grpc(endpoint, route, headers, ca, config.timeout)?,
            Protocol::Http => {
                // Without one of its own, the signal's path is below the common one.
                let url = match own {
                    Some(url) => url.clone(),
                    None => format!("{}{}", endpoint.trim_end_matches('/'), route.http),
                };
                Self::http(url, headers, ca.as_deref())?
            }
        };
        Ok(Some(transport))
    }

    fn grpc(
        endpoint: &str,
        route: &Route,
        headers: HeaderMap,
        ca: Option<Vec<u8>>,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let origin: Uri = endpoint.parse()?;
        let is_tls = origin.scheme_str() == Some("https");
        let mut endpoint =
            Endpoint::new(origin.clone())?.user_agent(receiver::AGENT)?.connect_timeout(timeout);
        if is_tls {
            let tls = match ca {
                Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)),
                None => ClientTlsConfig::new().with_webpki_roots(),
            };
            endpoint = endpoint.tls_config(tls).with_context(|| format!("{CA} cannot be used"))?;
        }
        // Nothing is connected before there is something to send.
        let client = Grpc::with_origin(endpoint.connect_lazy(), origin).max_decoding_message_size(ANSWER);
        let path = PathAndQuery::from_static(route.grpc);
        let metadata = MetadataMap::from_headers(headers);
        Ok(Self::Grpc(Box::new(Rpc { client, path, metadata })))
    }

    fn http(url: String, mut headers: HeaderMap, ca: Option<&[u8]>) -> anyhow::Result<Self> {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        Ok(Self::Http { client: receiver::client(headers, ca, CA)?, url })
    }

    /// Sends a batch once, and waits for the answer.
    ///
    /// # Errors
    /// Whether it may be sent again.
    pub async fn send(&self, batch: Bytes) -> Result<Taken, Refused> {
        match self {
            Self::Grpc(rpc) => {
                let Rpc { client, path, metadata } = &**rpc;
                let mut client = client.clone();
                let now = |error: tonic::transport::Error| Refused::Now { after: None, why: chain(&error) };
                client.ready().await.map_err(now)?;
                let mut request = tonic::Request::new(batch);
                request.metadata_mut().clone_from(metadata);
                let answer = client.unary(request, path.clone(), Raw).await;
                let answer = answer.map_err(|status| retry::status(&status))?;
                Ok(taken(answer.into_inner()))
            }
            Self::Http { client, url } => {
                let now =
                    |error: reqwest::Error| Refused::Now { after: None, why: chain(&error.without_url()) };
                let mut response = client.post(url).body(batch).send().await.map_err(now)?;
                let mut answer = Vec::new();
                while let Some(piece) = response.chunk().await.map_err(now)? {
                    let room = ANSWER.saturating_sub(answer.len());
                    answer.extend_from_slice(piece.get(..room).unwrap_or(&piece));
                    if answer.len() >= ANSWER {
                        break;
                    }
                }
                if !response.status().is_success() {
                    return Err(retry::http(response.status(), response.headers(), &said(&answer)));
                }
                Ok(taken(answer.into()))
            }
        }
    }
}

/// The headers of each request.
fn headers(config: &OtlpConfig) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in config.headers.iter().chain(&config.secret_headers.0) {
        let (name, value) = header(name, value).map_err(anyhow::Error::msg)?;
        headers.insert(name, value);
    }
    if let Some(file) = &config.headers_file {
        let shown = file.display();
        let text = std::fs::read_to_string(file).with_context(|| format!("otlp.headers_file: {shown}"))?;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, value) = line.split_once(':').with_context(|| {
                format!("otlp.headers_file: {shown} has a line that is not `name: value`")
            })?;
            let pair = header(name.trim(), value.trim());
            let (name, value) =
                pair.map_err(|reason| anyhow::anyhow!("otlp.headers_file: {shown}: {reason}"))?;
            headers.insert(name, value);
        }
    }
    Ok(headers)
}

/// The answers of all signals have the same form: partial success, with a number and a text.
fn taken(answer: Bytes) -> Taken {
    let partial = ExportTraceServiceResponse::decode(answer).unwrap_or_default().partial_success;
    let ExportTracePartialSuccess { rejected_spans, error_message } = partial.unwrap_or_default();
    Taken { rejected: u64::try_from(rejected_spans).unwrap_or(0), message: bounded(&error_message) }
}

/// What the body of a refusal says: a `google.rpc.Status`, or a text.
fn said(answer: &[u8]) -> String {
    #[derive(Clone, PartialEq, Message)]
    struct Said {
        #[prost(string, tag = "2")]
        message: String,
    }
    let said = Said::decode(answer).ok().map(|said| said.message).filter(|text| !text.is_empty());
    bounded(&said.unwrap_or_else(|| String::from_utf8_lossy(answer).into_owned()))
}

fn bounded(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.get(..line.floor_char_boundary(TEXT)).unwrap_or_default().escape_debug().to_string()
}

/// gRPC's messages as the bytes that they are: a batch is encoded once, however often it is sent.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;

    fn encode(&mut self, batch: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        buffer.put(batch);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, tonic::Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_says_is_read_and_bounded() {
        assert_eq!(taken(Bytes::new()), Taken::default());
        assert_eq!(taken(Bytes::from_static(b"not protobuf")), Taken::default());
        let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "too old\nx".to_owned() };
        let answer = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        assert_eq!(taken(answer.into()), Taken { rejected: 3, message: "too old".to_owned() });
        assert_eq!(said(b"\x08\x03\x12\x04oops"), "oops");
        assert_eq!(said(b"<html>gone"), "<html>gone");
        assert_eq!(said(&[b'x'; 5000]).len(), TEXT);
    }

    #[test]
    fn headers_are_of_the_settings_the_environment_and_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headers");
        std::fs::write(&file, "# the team's\nauthorization: Bearer t0ken\n\n").unwrap();
        let mut config = OtlpConfig { headers_file: Some(file.clone()), ..OtlpConfig::default() };
        config.headers.insert("x-team".to_owned(), "a".to_owned());
        config.secret_headers.0.insert("x-key".to_owned(), "b".to_owned());
        let read = headers(&config).unwrap();
        assert_eq!([&read["authorization"], &read["x-team"], &read["x-key"]], ["Bearer t0ken", "a", "b"]);
        for wrong in ["s3cret", "a b: s3cret", "a: s3cret\u{7f}"] {
            std::fs::write(&file, wrong).unwrap();
            let error = format!("{:#}", headers(&config).unwrap_err());
            assert!(error.contains("otlp.headers_file") && !error.contains("s3cret"), "{error}");
        }
    }
}
