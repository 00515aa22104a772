//! A call's request on its way to the function: its limits, and what of it is not the function's.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Uri, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use wasmtime_wasi_http::WasiBody;

use crate::http::problem::{Code, Problem};
use crate::limits::{Exceeded, Limit};
use crate::meter::bill::Bill;
use crate::units::Size;

/// Counted as they go over the wire in HTTP/1. Source: RFC 9112, section 5.
pub fn check_headers(request: &Request, most: Size) -> Result<(), Exceeded> {
    let line = |(name, value): (&http::HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    let bytes: usize = request.headers().iter().map(line).fold(0, usize::saturating_add);
    if bytes <= most.as_usize() {
        return Ok(());
    }
    let detail = format!("the headers have {bytes} bytes; the most for this function is {most}");
    Err(Exceeded::new(Limit::HeaderBytes, detail))
}

pub fn check_body(request: &Request, most: Size) -> Result<(), Exceeded> {
    let bytes = request.body().size_hint().lower();
    if bytes <= most.as_u64() {
        return Ok(());
    }
    let detail = format!("the body has {bytes} bytes; the most for this function is {most}");
    Err(Exceeded::new(Limit::RequestBytes, detail))
}

/// The request as the function sees it, and a flag that is set if its body grows beyond `most` bytes.
pub fn admit_body(
    request: Request,
    most: u64,
    bill: Option<Arc<Bill>>,
) -> Result<(http::Request<WasiBody>, Arc<AtomicBool>), Problem> {
    let (mut parts, body) = request.into_parts();
    parts.uri = inner_uri(&parts.uri)?;
    remove_hop_by_hop(&mut parts.headers);
    // HTTP/1.0 clients may leave it out; guests may not be given none.
    let host = parts.headers.entry(header::HOST).or_insert(HeaderValue::from_static("localhost"));
    if host.to_str().is_err() {
        return Err(Problem::new(Code::InvalidRequest, "the Host header is not text"));
    }
    let overflow = Arc::new(AtomicBool::new(false));
    let body = Question { body, left: most, overflow: Arc::clone(&overflow), bill };
    Ok((http::Request::from_parts(parts, body.boxed_unsync()), overflow))
}

/// A call's path in its parts: tenant, function, and what the function sees, without the slash before it.
pub fn split(path: &str) -> (&str, &str, &str) {
    let mut parts = path.strip_prefix("/fn/").unwrap_or_default().splitn(3, '/');
    let mut next = || parts.next().unwrap_or_default();
    (next(), next(), next())
}

/// The part of the path after the function's name, with the query.
fn inner_uri(uri: &Uri) -> Result<Uri, Problem> {
    let (_, _, rest) = split(uri.path());
    let path = match uri.query() {
        Some(query) => format!("/{rest}?{query}"),
        None => format!("/{rest}"),
    };
    let path: PathAndQuery = path.parse().map_err(|_| {
        Problem::new(Code::InvalidRequest, "the path after the function's name is not understood")
    })?;
    Ok(Uri::from(path))
}

/// Headers that are about one connection, not about the message. Source: RFC 9110, section 7.6.1.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        header::CONNECTION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
    ] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
}

/// A request's body on its way to the guest, up to its limit.
struct Question {
    body: Body,
    left: u64,
    overflow: Arc<AtomicBool>,
    /// Where its bytes are written.
    bill: Option<Arc<Bill>>,
}

impl HttpBody for Question {
    type Data = Bytes;
    type Error = wasmtime_wasi_http::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(_)) => return Poll::Ready(Some(Err(wasmtime_wasi_http::Error::ConnectionTerminated))),
            Some(Ok(frame)) => frame,
        };
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        if let Some(bill) = &self.bill {
            bill.add(|amounts| amounts.request_bytes += length);
        }
        match self.left.checked_sub(length) {
            Some(left) => {
                self.left = left;
                Poll::Ready(Some(Ok(frame)))
            }
            None => {
                self.overflow.store(true, Ordering::Relaxed);
                Poll::Ready(Some(Err(wasmtime_wasi_http::Error::HttpRequestBodySize(None))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
