//! The host of a sandbox: `wasi:http` 0.2 and `wasi:nn`.

mod http;
mod nn;
mod ready;

use std::io::Write;
use std::task::{Context, Poll};
use std::time::Duration;

pub use self::http::{Body, Fetching, Incoming, fetch, send};
pub use self::nn::{Graph, Tensor};
use self::ready::Readiness;
pub use self::ready::block_on;
use crate::bindings::wasi::clocks::monotonic_clock::subscribe_duration;

/// A moment to come.
#[derive(Debug)]
pub struct Timer {
    readiness: Readiness,
    after: Option<Duration>,
}

impl Timer {
    pub fn new(after: Duration) -> Self {
        Self { readiness: Readiness::default(), after: Some(after) }
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let nanos = self.after.map_or(0, |after| u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        self.readiness.poll(cx, || subscribe_duration(nanos))
    }
}

pub fn config(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// One write, so that a line is one call into the host. A log that cannot be written is no reason to fail.
pub fn log(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}
