//! What is collected of a call for its trace, while it runs.
//!
//! A [`Recording`] goes with the call, and with all that works for it. Most calls' traces are not kept, or nobody wants any:
//! then it is a context and nothing else, and telling it something makes nothing, for what is told is made by a closure.
//! At the call's end its usage record is added, and the whole goes into the exporter's queue; the spans are made of it there
//! ([`super::spans`]). What the guest does after that is in the trace if it is told before the spans are made.
//!
//! A call can be told of without end, so there are bounds: spans, lines of the log, and bytes of those. What is beyond them
//! is counted.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use http::{Method, Version, header};
use tokio::time::Instant;
use weir_gpu::Mark;

use super::{Context, Link};
use crate::meter::record::Record;
use crate::otlp::Exporter;
use crate::otlp::queue::Weighed;

/// Bytes of what a client says that are kept: its path, its user agent, the host that it asked for.
const TEXT: usize = 1 << 10;
/// What is shorter is no wait.
const WAIT: Duration = Duration::from_micros(100);
/// The most spans that an inference is linked to.
const LINKS: usize = 64;

/// A call's trace: its context, and what is collected of it.
#[derive(Debug, Clone)]
pub struct Recording {
    pub context: Context,
    on: Option<Arc<Recorded>>,
}

/// What was collected of a call.
pub struct Recorded {
    pub context: Context,
    /// The beginning on two clocks: the one that lengths are of, and the one that people look at.
    pub started: Instant,
    pub wall: SystemTime,
    bounds: Bounds,
    exporter: Arc<Exporter>,
    parts: Mutex<Parts>,
}

/// How much of a call is kept.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Spans beneath the call's own.
    pub spans: usize,
    /// Lines of the function's log.
    pub lines: usize,
    /// Bytes of all those lines together.
    pub line_bytes: usize,
    /// Whether the client's address is kept.
    pub client: bool,
}

/// The parts of a call.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    pub request: Option<Request>,
    pub spans: Vec<Span>,
    pub lines: Vec<Line>,
    pub line_bytes: usize,
    pub dropped_spans: u32,
    pub dropped_lines: u32,
    /// The spans have been made: nobody looks any more.
    taken: bool,
}

/// What a request said, texts up to a bound.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: Method,
    /// The route's template: `/fn/{tenant}/{function}/{*path}`.
    pub route: &'static str,
    pub path: String,
    pub scheme: &'static str,
    pub version: Version,
    /// Of the `Host` header.
    pub host: Option<String>,
    pub client: Option<IpAddr>,
    pub user_agent: Option<String>,
}

impl Request {
    /// What the head of a request says, that came to a route in the open or not.
    pub fn new(
        request: &http::Request<impl Sized>,
        route: &'static str,
        is_tls: bool,
        client: Option<IpAddr>,
    ) -> Self {
        let uri = request.uri();
        let of = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).map(bounded);
        Self {
            method: request.method().clone(),
            route,
            path: bounded(uri.path()),
            scheme: if is_tls { "https" } else { "http" },
            version: request.version(),
            host: of(header::HOST).or_else(|| uri.authority().map(|host| bounded(host.as_str()))),
            client,
            user_agent: of(header::USER_AGENT),
        }
    }
}

/// A part of the call that took time.
#[derive(Debug, Clone)]
pub struct Span {
    pub id: [u8; 8],
    pub from: Instant,
    pub to: Instant,
    pub what: What,
}

/// What a span is of.
#[derive(Debug, Clone)]
pub enum What {
    /// Waiting for one of the function's or the tenant's turns, or the node's sandboxes.
    Held,
    /// Waking the revision.
    Startup,
    /// In that: mapping its code.
    Code,
    /// Making a sandbox.
    Sandbox,
    /// A graph was loaded because the call asked for it.
    Load {
        model: Arc<str>,
        device: Arc<str>,
    },
    Inference(Box<Inference>),
    Outgoing(Box<Outgoing>),
}

/// An inference, from when it was asked for to its end.
#[derive(Debug, Clone, Default)]
pub struct Inference {
    /// Empty for bytes of the guest's own.
    pub model: Arc<str>,
    pub device: Arc<str>,
    /// Waiting for a lane, in all; and the part of its job's lane time that is its own.
    pub queue_ns: u64,
    pub device_ns: u64,
    pub rows: u64,
    pub batch_rows: u64,
    pub padding_rows: u64,
    pub operators: u64,
    /// What went wrong: a short name without values.
    pub error: Option<Arc<str>>,
    /// The calls whose requests rode in the same job.
    pub links: Vec<Link>,
}

/// A request that the guest sent, until its answer's head.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub method: Method,
    pub scheme: &'static str,
    /// Without its port.
    pub host: String,
    pub port: Option<u16>,
    pub status: Option<u16>,
    /// Why there is no answer: a short name without values.
    pub error: Option<String>,
}

/// A line of the function's log.
#[derive(Debug, Clone)]
pub struct Line {
    pub at: Instant,
    /// `stdout`, `stderr` or `weir`.
    pub stream: &'static str,
    pub text: String,
}

impl Recording {
    /// One that collects nothing.
    pub fn off(context: Context) -> Self {
        Self { context, on: None }
    }

    pub(super) fn on(context: Context, started: Instant, exporter: Arc<Exporter>) -> Self {
        let (wall, parts, bounds) = (SystemTime::now(), Mutex::default(), exporter.bounds());
        let recorded = Recorded { context: context.clone(), started, wall, bounds, exporter, parts };
        Self { context, on: Some(Arc::new(recorded)) }
    }

    pub fn is_on(&self) -> bool {
        self.on.is_some()
    }

    /// What those who ride with an inference of the call are told of it, to link to it: its span, if that is kept.
    pub fn mark(&self) -> Option<Mark> {
        self.on.as_ref().map(|on| on.context.link().mark())
    }

    /// What was asked, and by whom.
    pub fn request(&self, request: impl FnOnce() -> Request) {
        if let Some(on) = &self.on {
            let mut request = request();
            request.client = request.client.filter(|_| on.bounds.client);
            on.parts().request = Some(request);
        }
    }

    /// A wait of the call that has ended, if it was one: most calls need not wait, and then there is no span of it.
    pub fn waited(&self, from: Instant, to: Instant, what: impl FnOnce() -> What) {
        if to.saturating_duration_since(from) >= WAIT {
            self.span(from, to, what);
        }
    }

    /// A part of the call that has ended.
    pub fn span(&self, from: Instant, to: Instant, what: impl FnOnce() -> What) {
        if let Some(on) = &self.on {
            on.add(super::ids::span(), from, to, what);
        }
    }

    /// The same for one whose id went out before: what it caused has it as its parent.
    pub fn span_of(&self, context: &Context, from: Instant, to: Instant, what: impl FnOnce() -> What) {
        if let Some(on) = &self.on {
            on.add(context.span, from, to, what);
        }
    }

    /// A line of the function's log.
    pub fn line(&self, stream: &'static str, text: &str) {
        let Some(on) = &self.on else { return };
        let mut parts = on.parts();
        if parts.taken {
            return;
        }
        let bytes = parts.line_bytes.saturating_add(text.len());
        if parts.lines.len() >= on.bounds.lines || bytes > on.bounds.line_bytes {
            parts.dropped_lines = parts.dropped_lines.saturating_add(1);
            return;
        }
        parts.line_bytes = bytes;
        parts.lines.push(Line { at: Instant::now(), stream, text: text.to_owned() });
    }

    /// The call has ended, and this is what it used. Only the first end counts.
    pub fn end(&mut self, record: Record) {
        if let Some(on) = self.on.take() {
            let exporter = Arc::clone(&on.exporter);
            exporter.trace(CallTrace { recorded: on, record: Box::new(record) });
        }
    }
}

impl std::fmt::Debug for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorded").field("parts", &*self.parts()).finish_non_exhaustive()
    }
}

impl Recorded {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, id: [u8; 8], from: Instant, to: Instant, what: impl FnOnce() -> What) {
        let mut parts = self.parts();
        if parts.taken {
            return;
        }
        if parts.spans.len() >= self.bounds.spans {
            parts.dropped_spans = parts.dropped_spans.saturating_add(1);
            return;
        }
        let mut what = what();
        if let What::Inference(inference) = &mut what {
            inference.links.truncate(LINKS);
        }
        parts.spans.push(Span { id, from, to, what });
    }

    /// What there is now. What comes later is not in the trace.
    pub fn take(&self) -> Parts {
        std::mem::replace(&mut *self.parts(), Parts { taken: true, ..Parts::default() })
    }
}

/// An error's name, without what it was about.
pub fn variant(error: &dyn std::fmt::Debug) -> String {
    let text = format!("{error:?}");
    text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// A text up to a bound, whole characters.
fn bounded(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT)).unwrap_or_default().to_owned()
}

/// The trace of a call that has ended.
#[derive(Debug)]
pub struct CallTrace {
    pub recorded: Arc<Recorded>,
    pub record: Box<Record>,
}

impl Weighed for CallTrace {
    /// About what it holds: there are bounds to each call's, and this is for the sum.
    fn weight(&self) -> usize {
        const CALL: usize = 1 << 10;
        const SPAN: usize = 256;
        const LINE: usize = 64;
        let parts = self.recorded.parts();
        let texts = parts.request.as_ref().map_or(0, |request| {
            let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
            request.path.len() + of(&request.host) + of(&request.user_agent)
        });
        let links: usize = parts.spans.iter().map(|span| span.what.links().len()).sum();
        let spans = (parts.spans.len() * SPAN).saturating_add(links * size_of::<Link>());
        let lines = (parts.lines.len() * LINE).saturating_add(parts.line_bytes);
        CALL.saturating_add(texts).saturating_add(spans).saturating_add(lines)
    }

    /// Spans.
    fn count(&self) -> u64 {
        let parts = self.recorded.parts();
        let beneath: usize = parts.spans.iter().map(|span| span.what.spans()).sum();
        1 + beneath as u64
    }
}

impl What {
    fn links(&self) -> &[Link] {
        match self {
            Self::Inference(inference) => &inference.links,
            _ => &[],
        }
    }

    /// Spans that are made of it: an inference that waited is two.
    fn spans(&self) -> usize {
        match self {
            Self::Inference(inference) if inference.queue_ns > 0 => 2,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> (Recording, Arc<Exporter>) {
        let exporter = Arc::new(Exporter::to_nowhere());
        (Recording::on(Context::root(|_| true), Instant::now(), Arc::clone(&exporter)), exporter)
    }

    #[test]
    fn what_is_off_makes_nothing() {
        let mut off = Recording::off(Context::root(|_| false));
        let now = Instant::now();
        off.request(|| panic!("nobody wants it"));
        off.span(now, now, || panic!("nobody wants it"));
        off.line("stdout", "said");
        off.end(Record::default());
        assert!(!off.is_on());
    }

    #[test]
    fn a_call_keeps_no_more_than_it_may_and_counts_the_rest() {
        let (recording, exporter) = recording();
        let (bounds, now) = (exporter.bounds(), Instant::now());
        for _ in 0..bounds.spans + 3 {
            recording.span(now, now, || What::Held);
        }
        for _ in 0..bounds.lines + 2 {
            recording.line("stdout", "x");
        }
        recording.waited(now, now, || panic!("nobody waited"));
        let parts = recording.on.as_ref().unwrap().take();
        assert_eq!((parts.spans.len(), parts.dropped_spans), (bounds.spans, 3));
        assert_eq!((parts.lines.len(), parts.dropped_lines), (bounds.lines, 2));
        recording.line("stderr", "late");
        recording.span(now, now, || panic!("nobody looks"));
        let recording = self::recording().0;
        recording.line("stderr", &"x".repeat(bounds.line_bytes));
        recording.line("stderr", "y");
        let parts = recording.on.as_ref().unwrap().take();
        assert_eq!((parts.lines.len(), parts.dropped_lines), (1, 1));
    }

    #[test]
    fn an_ended_call_is_in_the_queue_once() {
        let (mut recording, exporter) = recording();
        let mut other = recording.clone();
        recording.end(Record::default());
        recording.end(Record::default());
        assert_eq!(exporter.counts().traces.queued(), 1);
        // What works for the call on may still tell of it.
        other.span(Instant::now(), Instant::now(), || What::Held);
        assert!(other.is_on());
        other = Recording::off(other.context);
        assert!(!other.is_on());
    }

    #[test]
    fn long_texts_of_clients_are_cut_between_characters() {
        let asked = http::Request::get("/fn/t/f/x?secret=1").header(header::USER_AGENT, "a".repeat(5000));
        let request = Request::new(&asked.body(()).unwrap(), "/r", true, None);
        assert_eq!(request.user_agent.unwrap().len(), TEXT);
        assert_eq!((request.path.as_str(), request.scheme, request.host), ("/fn/t/f/x", "https", None));
        assert_eq!(bounded(&format!("{}é", "a".repeat(TEXT - 1))).len(), TEXT - 1);
    }
}
