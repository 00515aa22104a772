//! One sandbox's part of the way out: to which hosts, and how often in a call.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body::Frame;
use http_body_util::BodyExt;
use reqwest::Url;
use tokio::time::Instant;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use super::{Egress, HostPattern, target};
use crate::meter::bill::Bill;
use crate::trace::recording::{Outgoing as OutgoingSpan, What, variant};
use crate::trace::{Context, Recording, context};

/// Why a request was not sent, for the function's log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("denied a request to `{host}`: the function's `egress` does not name it")]
    Host { host: String },
    #[error("denied a request to `{host}`: functions may not reach its address")]
    Address { host: String },
    #[error("denied a request: the call has sent {most}, the most that it may")]
    TooMany { most: u32 },
}

/// Who is told of refusals.
pub type Refused = Arc<dyn Fn(Refusal) + Send + Sync>;

type Done = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Answer = Result<(Response<WasiBody>, Done), Error>;

/// One sandbox's part of the way out: to which hosts, and how often in a call.
pub struct Outgoing {
    egress: Arc<Egress>,
    hosts: Arc<[HostPattern]>,
    most: u32,
    pub(super) left: u32,
    refused: Refused,
    /// Where what the call sends is counted.
    bill: Option<Arc<Bill>>,
    /// The call that the guest runs for.
    trace: Option<Recording>,
}

impl Outgoing {
    pub fn new(egress: Arc<Egress>, hosts: Arc<[HostPattern]>, most: u32, refused: Refused) -> Self {
        Self { egress, hosts, most, left: most, refused, bill: None, trace: None }
    }

    /// A new call begins, with the whole number of requests; what it sends is on this bill, and in this trace.
    pub fn begin(&mut self, bill: Option<Arc<Bill>>, trace: Option<Recording>) {
        self.left = self.most;
        self.bill = bill;
        self.trace = trace;
    }

    fn admit(&mut self, uri: &Uri) -> Result<Url, Error> {
        let Some(left) = self.left.checked_sub(1) else {
            (self.refused)(Refusal::TooMany { most: self.most });
            return Err(Error::ConnectionLimitReached);
        };
        self.left = left;
        let url = target(uri)?;
        let own = if url.scheme() == "https" { 443 } else { 80 };
        let (host, port) = (url.host_str().unwrap_or_default(), url.port().unwrap_or(own));
        if !self.hosts.iter().any(|pattern| pattern.allows(host, port, own)) {
            (self.refused)(Refusal::Host { host: place(&url) });
            return Err(Error::HttpRequestDenied);
        }
        Ok(url)
    }
}

/// A URL's host as an entry of `egress` would have it. A guest may make one of any length; no name is longer than this.
fn place(url: &Url) -> String {
    let host: String = url.host_str().unwrap_or_default().chars().take(253).collect();
    url.port().map_or(host.clone(), |port| format!("{host}:{port}"))
}

/// A body whose bytes are written down as they leave.
fn counted(body: WasiBody, bill: Arc<Bill>) -> WasiBody {
    let count = move |frame: Frame<Bytes>| {
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        bill.add(|amounts| amounts.egress_bytes += bytes);
        frame
    };
    body.map_frame(count).boxed_unsync()
}

/// A request on its way, as the call's trace has it.
struct Sent {
    trace: Recording,
    own: Context,
    from: Instant,
    method: Method,
    scheme: &'static str,
    host: String,
    port: Option<u16>,
}

impl Sent {
    /// The request is about to leave: it says what caused it.
    fn new(trace: Recording, url: &Url, request: &mut Request<WasiBody>) -> Self {
        let own = trace.context.child();
        context::inject(request.headers_mut(), &trace.context, &own);
        Self {
            own,
            from: Instant::now(),
            method: request.method().clone(),
            scheme: if url.scheme() == "https" { "https" } else { "http" },
            host: url.host_str().unwrap_or_default().chars().take(253).collect(),
            port: url.port_or_known_default(),
            trace,
        }
    }

    /// Its answer's head is there, or there is none.
    fn answered(self, response: &Result<Response<WasiBody>, Error>) {
        let Self { trace, own, from, method, scheme, host, port } = self;
        trace.span_of(&own, from, Instant::now(), || {
            let status = response.as_ref().ok().map(|response| response.status().as_u16());
            let error = response.as_ref().err().map(|error| variant(error));
            What::Outgoing(Box::new(OutgoingSpan { method, scheme, host, port, status, error }))
        });
    }
}

/// A piece of a body on its way out of a guest. Two wait at most for whoever takes them.
pub const PIECE: usize = 64 << 10;

impl WasiHttpHooks for Outgoing {
    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        PIECE
    }

    fn send_request(
        &mut self,
        mut request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Done,
    ) -> Box<dyn Future<Output = Answer> + Send> {
        let url = match self.admit(request.uri()) {
            Ok(url) => url,
            Err(error) => return Box::new(std::future::ready(Err(error))),
        };
        let (egress, refused) = (Arc::clone(&self.egress), Arc::clone(&self.refused));
        let sent = self.trace.as_ref().map(|trace| Sent::new(trace.clone(), &url, &mut request));
        let request = match self.bill.clone() {
            Some(bill) => request.map(|body| counted(body, bill)),
            None => request,
        };
        Box::new(async move {
            let host = place(&url);
            let response = egress.deliver(url, request, options).await;
            if let Some(sent) = sent {
                sent.answered(&response);
            }
            if let Err(Error::DestinationIpProhibited) = response {
                refused(Refusal::Address { host });
            }
            // The client drives the connection, so nothing is left to do here.
            let done: Done = Box::new(std::future::ready(Ok(())));
            Ok((response?, done))
        })
    }
}
