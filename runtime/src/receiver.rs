//! Clients of what the operator has data sent to: the receivers of traces and of events.

use std::path::Path;

use anyhow::Context;
use http::HeaderMap;

/// What requests say of whom they are from.
pub const AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));

/// What is in a file of certificates of authorities (PEM), if there is to be one; `setting` is the name of what says so.
///
/// # Errors
/// When it cannot be read.
pub fn authorities(file: Option<&Path>, setting: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let read = |file: &Path| {
        std::fs::read(file).with_context(|| format!("{setting}: {} cannot be read", file.display()))
    };
    file.map(read).transpose()
}

/// A client that goes where it is told and nowhere else: no proxies of the environment, no redirects. With `ca`, certificates of
/// authorities (PEM), the receiver's must be of one of them, in place of the public ones; `setting` is the name of it.
///
/// # Errors
/// Certificates that cannot be used.
pub fn client(headers: HeaderMap, ca: Option<&[u8]>, setting: &str) -> anyhow::Result<reqwest::Client> {
    let mut client = reqwest::Client::builder()
        .use_rustls_tls()
        .user_agent(AGENT)
        .default_headers(headers)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy();
    if let Some(ca) = ca {
        client = client.tls_built_in_root_certs(false);
        let certificates = reqwest::Certificate::from_pem_bundle(ca);
        for certificate in certificates.with_context(|| format!("{setting} cannot be used"))? {
            client = client.add_root_certificate(certificate);
        }
    }
    Ok(client.build()?)
}

/// An error with what caused it.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
