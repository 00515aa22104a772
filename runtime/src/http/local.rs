//! Who may be the operator without a key: programs of this machine, and no web page that a browser on it shows.
//!
//! A server that was started with `--dev` asks for no keys, and is reached from this machine alone. So is a browser's every
//! page: it can send forms anywhere, and with a name of its own that leads to this machine it can read what comes back. Such
//! requests say where they come from, in `Origin` or in `Host`; a page cannot say otherwise.

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, Uri, header};

use super::problem::{Code, Problem};

/// That a request is one of this machine, as its headers say.
///
/// # Errors
/// A host or an origin that is elsewhere.
pub fn check(headers: &HeaderMap) -> Result<(), Problem> {
    let is_local = |header, is: fn(&str) -> bool| {
        headers.get_all(header).iter().all(|value| value.to_str().is_ok_and(is))
    };
    if is_local(header::HOST, is_host) && is_local(header::ORIGIN, is_origin) {
        return Ok(());
    }
    let detail = "a server that was started with --dev takes this from this machine alone: with a Host, and an Origin if there \
                  is one, that is localhost or a loopback address";
    Err(Problem::new(Code::Forbidden, detail))
}

fn is_host(host: &str) -> bool {
    host.parse().is_ok_and(|authority| is_this_machine(&authority))
}

fn is_origin(origin: &str) -> bool {
    origin
        .parse::<Uri>()
        .is_ok_and(|uri| uri.scheme().is_some() && uri.authority().is_some_and(is_this_machine))
}

fn is_this_machine(authority: &Authority) -> bool {
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_few_names() {
        let good = [
            "localhost",
            "LocalHost:7070",
            "127.0.0.1",
            "127.1.2.3:7070",
            "[::1]:7070",
            "[::ffff:127.0.0.1]",
        ];
        for host in good {
            assert!(is_host(host) && is_origin(&format!("http://{host}")), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            // A function's own pages, where `http.domain` is `localhost`.
            "rank.default.localhost:7070",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "evil.example:localhost",
        ] {
            assert!(!is_host(host) && !is_origin(&format!("http://{host}")), "{host}");
        }
        for origin in ["null", "localhost", "http://", "/"] {
            assert!(!is_origin(origin), "{origin}");
        }
    }
}
