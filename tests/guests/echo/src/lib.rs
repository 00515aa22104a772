//! Says what it was asked, and what it can see: the request, its environment, and a count that starts at zero in
//! every fresh sandbox. Logs a line to each output stream.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::Serialize;
use weir_sdk::{Error, Request, Response, function};

static CALLS: AtomicU32 = AtomicU32::new(0);

#[derive(Serialize)]
struct Seen {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: String,
    env: BTreeMap<String, String>,
    /// Calls that this sandbox served before.
    calls_before: u32,
    files: bool,
}

#[function]
fn handle(request: Request) -> Result<Response, Error> {
    println!("stdout of {}", request.path());
    eprintln!("stderr of {}", request.path());
    let seen = Seen {
        method: request.method().to_owned(),
        path: request.path().to_owned(),
        query: request.query_pairs().to_vec(),
        headers: request
            .headers()
            .iter()
            .map(|(name, value)| (name.clone(), String::from_utf8_lossy(value).into_owned()))
            .collect(),
        body: request.text()?.to_owned(),
        env: std::env::vars().collect(),
        calls_before: CALLS.fetch_add(1, Ordering::Relaxed),
        files: std::fs::read_dir("/").is_ok(),
    };
    Response::json(&seen)
}
