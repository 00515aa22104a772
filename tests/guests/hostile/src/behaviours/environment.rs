//! Says what it sees of where it runs.

use std::io::Read;

use weir_sdk::bindings::wasi::http::types::{IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let env: Vec<String> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
    let arguments = std::env::args().count();
    let mut stdin = vec![];
    let _ = std::io::stdin().read_to_end(&mut stdin);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let clock = since.is_ok_and(|since| since.as_secs() > 1_500_000_000);
    let told = format!(
        "env: {env:?}, arguments: {arguments}, stdin: {} bytes, folder: {:?}, clock: {clock}",
        stdin.len(),
        std::env::current_dir().map_or_else(|_| "none".to_owned(), |folder| folder.display().to_string()),
    );
    crate::answer(out, &told);
}
