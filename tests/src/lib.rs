//! The harness: a server in this process, the binary as a process, models made on the spot, and the hostile corpus.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod client;
pub mod corpus;
pub mod guests;
pub mod onnx;
pub mod otlp;
mod process;
mod server;
pub mod usage;

use std::path::PathBuf;
use std::time::Duration;

pub use client::{Client, Heard, metric};
pub use process::Process;
pub use server::{Answer, Server};

/// Waits until `condition` is true. This is the one place where tests wait for time to pass: for what the server does
/// on its own, such as going to zero.
pub async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    for _ in 0..3000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never came to be that {what}");
}

/// The repository's root.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A model that `make models` fetches.
pub fn model(path: &str) -> Vec<u8> {
    let file = root().join("models").join(path);
    std::fs::read(&file)
        .unwrap_or_else(|error| panic!("{} ({error}); run `make models` first", file.display()))
}

/// A whole number on the command line, as `--name NUMBER`.
pub fn argument(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| *argument != format!("--{name}")).skip(1);
    match arguments.next() {
        Some(value) => value.parse().unwrap_or_else(|_| panic!("--{name} takes a whole number, not {value}")),
        None => default,
    }
}
