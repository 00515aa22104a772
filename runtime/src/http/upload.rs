//! Bodies: those that go to disk (a component with its configuration, or a model), and small ones of JSON.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::multipart::Field;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Multipart, Request};
use bytes::Bytes;
use http::{StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

use super::problem::{Code, Problem};
use crate::function::FunctionConfig;
use crate::limits::Limit;
use crate::node::Node;
use crate::store::{ReceiveError, Received};
use crate::units::Size;

/// The longest configuration. It is text that a person wrote.
pub const CONFIG_BYTES: Size = Size::mib(1);

impl From<ReceiveError> for Problem {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::TooLarge(_) => Self::new(Code::TooLarge, error.to_string()),
            ReceiveError::Broken(_) => Self::new(Code::InvalidRequest, error.to_string()),
            ReceiveError::Disk(error) => error.into(),
        }
    }
}

/// How much of a body that nobody wants is read, and for how long: a client that is cut off while it sends may not see
/// why.
const DRAINED: usize = 64 << 20;
const DRAINING: Duration = Duration::from_secs(5);

/// A place for one upload, which `body` is.
///
/// # Errors
/// When there is none.
pub async fn place(node: &Node, body: Body) -> Result<(OwnedSemaphorePermit, Body), Problem> {
    match node.upload() {
        Ok(place) => Ok((place, body)),
        Err(problem) => Err(refused(problem, body).await),
    }
}

/// A refusal of an upload whose body nobody has read.
pub async fn refused(problem: Problem, body: Body) -> Problem {
    let _ = tokio::time::timeout(DRAINING, drain(body)).await;
    problem
}

/// A body that is read to its end when its reader has no more use for it, within the bounds of a refusal: a connection whose
/// body was left in the middle is closed, and a client that still sends would not see why.
pub struct ReadToEnd(Option<Body>);

impl ReadToEnd {
    pub fn new(body: Body) -> Self {
        Self(Some(body))
    }
}

impl HttpBody for ReadToEnd {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

impl Drop for ReadToEnd {
    fn drop(&mut self) {
        let left = self.0.take().filter(|body| !body.is_end_stream());
        if let (Some(body), Ok(runtime)) = (left, Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(DRAINING, drain(body)));
        }
    }
}

async fn drain(mut body: Body) {
    let mut left = DRAINED;
    while let Some(Ok(frame)) = body.frame().await {
        let Some(less) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
        left = less;
    }
}

/// What `receives` gives, if it does so within the time for uploads.
pub async fn in_time<T>(
    node: &Node,
    receives: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let most = node.settings().http.upload_timeout;
    tokio::time::timeout(most, receives).await.unwrap_or_else(|_| {
        let most = humantime::format_duration(most);
        Err(Problem::new(Code::UploadTimeout, format!("the body was not there within {most}, the most here")))
    })
}

/// A body of JSON, up to the route's limit.
///
/// # Errors
/// A body that is too large, is no JSON, or is not what this route takes; then with the field's name.
pub async fn json<T: DeserializeOwned>(node: &Node, request: Request) -> Result<T, Problem> {
    let body = in_time(node, async { Ok(Json::<T>::from_request(request, &()).await) }).await?;
    body.map(|Json(body)| body).map_err(|error| {
        let code = match &error {
            JsonRejection::JsonDataError(_) => Code::InvalidConfig,
            JsonRejection::MissingJsonContentType(_) => Code::UnsupportedMediaType,
            other if other.status() == StatusCode::PAYLOAD_TOO_LARGE => Code::TooLarge,
            _ => Code::InvalidRequest,
        };
        // Without the framework's words about what it did: its source is what was wrong.
        let detail = match (&error, error.source()) {
            (JsonRejection::MissingJsonContentType(_), _) => {
                "the body is JSON here: send `Content-Type: application/json`".to_owned()
            }
            (JsonRejection::JsonDataError(_), Some(reason)) => plainly(&reason.to_string()),
            (JsonRejection::JsonSyntaxError(_), Some(reason)) => format!("the body is not JSON: {reason}"),
            _ => error.body_text(),
        };
        Problem::new(code, detail)
    })
}

/// What serde has against a value, without its word for lists.
fn plainly(reason: &str) -> String {
    reason.replace("expected a sequence", "expected a list, such as [\"a\", \"b\"]")
}

fn too_large(node: &Node, limit: Limit, error: ReceiveError) -> Problem {
    if let ReceiveError::TooLarge(_) = error {
        node.telemetry.limit(limit);
        tracing::info!(%error, setting = limit.field(), "an upload was refused");
    }
    error.into()
}

/// A deploy's body: `application/wasm`, or multipart with `component` and an optional `config` in JSON.
///
/// # Errors
/// A problem for another type of body, a part that is missing, unknown or twice there, or a body that is too large.
pub async fn component(node: &Node, request: Request) -> Result<(FunctionConfig, Received), Problem> {
    let most = node.settings().limits.component_bytes;
    match media_type(&request).as_deref() {
        Some("application/wasm" | "application/octet-stream") => {
            let body = request.into_body().into_data_stream();
            let received = in_time(node, async {
                let received = node.store.blobs.receive(most, body).await;
                received.map_err(|error| too_large(node, Limit::ComponentBytes, error))
            });
            Ok((FunctionConfig::default(), received.await?))
        }
        Some("multipart/form-data") => in_time(node, parts(node, most, request)).await,
        other => Err(Problem::new(
            Code::UnsupportedMediaType,
            format!(
                "send the component as `application/wasm`, or as `multipart/form-data` with the parts `config` (JSON) \
                 and `component`; this body is {}",
                other.map_or("of no type".to_owned(), |other| format!("`{}`", other.escape_default())),
            ),
        )),
    }
}

/// A model's body, as it is.
///
/// # Errors
/// A body that is empty, too large, or breaks off.
pub async fn model(node: &Node, body: Body) -> Result<Received, Problem> {
    let received = in_time(node, async {
        let received =
            node.store.blobs.receive(node.settings().limits.model_bytes, body.into_data_stream()).await;
        received.map_err(|error| too_large(node, Limit::ModelBytes, error))
    })
    .await?;
    if received.bytes == 0 {
        return Err(Problem::new(Code::InvalidModel, "the body is empty; send the bytes of a model"));
    }
    Ok(received)
}

fn media_type(request: &Request) -> Option<String> {
    let value = request.headers().get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or(value).trim().to_ascii_lowercase())
}

fn broken(error: &impl std::fmt::Display) -> Problem {
    Problem::new(Code::InvalidRequest, format!("the multipart body is not understood: {error}"))
}

async fn parts(node: &Node, most: Size, request: Request) -> Result<(FunctionConfig, Received), Problem> {
    let mut parts = Multipart::from_request(request, &()).await.map_err(|error| broken(&error))?;
    let (mut config, mut component) = (None, None);
    while let Some(part) = parts.next_field().await.map_err(|error| broken(&error))? {
        let name = part.name().unwrap_or_default().to_owned();
        let twice = match name.as_str() {
            "config" => config.replace(read_config(part).await?).is_some(),
            "component" => {
                let received = node.store.blobs.receive(most, part).await;
                let received = received.map_err(|error| too_large(node, Limit::ComponentBytes, error))?;
                component.replace(received).is_some()
            }
            other => {
                return Err(Problem::new(
                    Code::InvalidRequest,
                    format!(
                        "there is no part `{}`; the parts are `config` and `component`",
                        other.escape_default()
                    ),
                ));
            }
        };
        if twice {
            return Err(Problem::new(Code::InvalidRequest, format!("the part `{name}` is there twice")));
        }
    }
    let component =
        component.ok_or_else(|| Problem::new(Code::InvalidRequest, "the part `component` is missing"))?;
    Ok((config.unwrap_or_default(), component))
}

async fn read_config(mut part: Field<'_>) -> Result<FunctionConfig, Problem> {
    let (mut text, mut bytes) = (Vec::new(), 0_usize);
    while let Some(piece) = part.chunk().await.map_err(|error| broken(&error))? {
        bytes = bytes.saturating_add(piece.len());
        // What is too much is read on, up to the body's limit: a client that is cut off while it sends may not see why.
        if bytes <= CONFIG_BYTES.as_usize() {
            text.extend_from_slice(&piece);
        }
    }
    if bytes > CONFIG_BYTES.as_usize() {
        let detail = format!("config is larger than {CONFIG_BYTES}, the most here");
        return Err(Problem::new(Code::TooLarge, detail));
    }
    // With the field's name: of a configuration in which one of many is not as it should be.
    let mut json = serde_json::Deserializer::from_slice(&text);
    let config = serde_path_to_error::deserialize(&mut json).map_err(|error| error.to_string());
    let config = config.and_then(|config| json.end().map(|()| config).map_err(|error| error.to_string()));
    config.map_err(|reason| Problem::new(Code::InvalidConfig, format!("config: {}", plainly(&reason))))
}
