//! Which traces are kept: as the caller's trace says, and of those that begin here a ratio.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use tokio::time::Instant;

use super::recording::Request;
use super::{Context, Recording};
use crate::config::OtlpConfig;
use crate::otlp::Exporter;

/// Begins the traces of calls.
#[derive(Default)]
pub struct Tracer {
    /// Nothing where no traces are sent anywhere.
    exporter: Option<Arc<Exporter>>,
    ratio: Ratio,
    /// Whether clients come over TLS.
    is_tls: bool,
}

impl Tracer {
    /// One that sends what it keeps to `exporter`, if that takes traces.
    pub fn new(exporter: Option<&Arc<Exporter>>, config: &OtlpConfig, is_tls: bool) -> Self {
        let exporter = exporter.filter(|exporter| exporter.has_traces()).cloned();
        Self { exporter, ratio: Ratio::new(config.sample_ratio), is_tls }
    }

    /// The context of a call with these headers: part of its caller's trace, or the beginning of one.
    pub fn context(&self, headers: &HeaderMap) -> Context {
        let is_kept = |trace: &[u8; 16]| self.exporter.is_some() && self.ratio.keeps(trace);
        Context::of(headers).unwrap_or_else(|| Context::root(is_kept))
    }

    /// What collects the trace of a call that began with this request. Where nobody wants it, it is one that collects nothing.
    pub fn record(
        &self,
        context: Context,
        started: Instant,
        request: &http::Request<impl Sized>,
        (route, client): (&'static str, Option<IpAddr>),
    ) -> Recording {
        let Some(exporter) = self.exporter.as_ref().filter(|_| context.sampled) else {
            return Recording::off(context);
        };
        let recording = Recording::on(context, started, Arc::clone(exporter));
        recording.request(|| Request::new(request, route, self.is_tls, client));
        recording
    }
}

/// How many of all traces are kept. The same traces are, wherever the ratio is the same: their ids decide.
#[derive(Default)]
struct Ratio {
    /// Of the 2^56 numbers that an id's last seven bytes can be.
    kept: u64,
}

impl Ratio {
    /// What is no number from 0 to 1 is as the nearest.
    fn new(ratio: f64) -> Self {
        Self { kept: (ratio * (1_u64 << 56) as f64) as u64 }
    }

    /// Source: OpenTelemetry's specification of probability sampling: an id's randomness is its last 56 bits.
    fn keeps(&self, trace: &[u8; 16]) -> bool {
        let number = u128::from_be_bytes(*trace) & ((1 << 56) - 1);
        number >= (1 << 56) - u128::from(self.kept)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::super::context::TRACEPARENT;
    use super::*;

    #[test]
    fn a_ratio_keeps_its_part_of_the_ids() {
        let id = |number: u64| (0xabcd_u128 << 112 | u128::from(number)).to_be_bytes();
        let (half, most) = (1 << 55, (1 << 56) - 1);
        for (ratio, number, kept) in [
            (0.0, most, false),
            (1.0, 0, true),
            (0.5, half - 1, false),
            (0.5, half, true),
            (0.25, half + half / 2 - 1, false),
            (0.25, half + half / 2, true),
        ] {
            assert_eq!(Ratio::new(ratio).keeps(&id(number)), kept, "{ratio} {number}");
        }
        let tenth = Ratio::new(0.1);
        let kept = (0..10_000).filter(|_| Context::root(|trace| tenth.keeps(trace)).sampled).count();
        assert!((700..1300).contains(&kept), "{kept}");
    }

    #[test]
    fn the_callers_decision_holds_and_nothing_is_collected_for_nobody() {
        let (off, exporter) = (Tracer::default(), Arc::new(Exporter::to_nowhere()));
        let tracer = |ratio| {
            let config = OtlpConfig { sample_ratio: ratio, ..OtlpConfig::default() };
            Tracer::new(Some(&exporter), &config, false)
        };
        let record = |tracer: &Tracer, context| {
            tracer.record(context, Instant::now(), &http::Request::new(()), ("/", None)).is_on()
        };
        let mut headers = HeaderMap::new();
        for (ratio, flags, sampled, recorded) in [
            (0.0, Some("01"), true, true),
            (1.0, Some("00"), false, false),
            (1.0, None, true, true),
            (0.0, None, false, false),
        ] {
            headers.clear();
            if let Some(flags) = flags {
                let text = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
                headers.insert(TRACEPARENT, HeaderValue::from_str(&text).unwrap());
            }
            let tracer = tracer(ratio);
            let context = tracer.context(&headers);
            assert_eq!(context.sampled, sampled, "{ratio} {flags:?}");
            assert_eq!(record(&tracer, context), recorded);
            // A caller whose trace is kept has that told to whom the call asks, though nothing is kept here.
            let context = off.context(&headers);
            assert_eq!(context.sampled, flags == Some("01"));
            assert!(!record(&off, context));
        }
    }
}
