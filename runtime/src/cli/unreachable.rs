//! Why no answer came of a server, and what to do about it.

use std::error::Error;

use rustls::CertificateError;

/// A sentence about a request to `url` that got no answer.
pub fn why(url: &str, error: &reqwest::Error) -> String {
    if let Some(tls) = tls(error) {
        return of_tls(url, tls);
    }
    let cause = chain(error);
    if url.starts_with("http://") && !error.is_connect() && !error.is_timeout() {
        return format!(
            "the server at {url} does not answer as HTTP does ({cause}); if it serves TLS, write https:// in WEIR_URL"
        );
    }
    format!(
        "the server at {url} does not answer ({cause}); start one with `weir serve --dev`, or set WEIR_URL"
    )
}

/// A server that answers, and with which no connection with TLS comes about.
fn of_tls(url: &str, error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => format!(
            "the server at {url} answers, but nobody who is trusted signed its certificate; \
             name the certificate of the CA that did with --ca FILE, or WEIR_CA"
        ),
        rustls::Error::InvalidCertificate(
            name @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        ) => format!(
            "the server at {url} answers, but its certificate is for other names ({name}); \
             write one of them in WEIR_URL, or give the server a certificate with this one"
        ),
        rustls::Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            format!(
                "the server at {url} answers, but its certificate is a CA's own (CaUsedAsEndEntity); give it one \
                 that the CA signed, and the CA's to --ca (docs/access.md, TLS)"
            )
        }
        rustls::Error::InvalidCertificate(other) => format!(
            "the server at {url} answers, but its certificate is not trusted ({other}); \
             --ca FILE, or WEIR_CA, names the certificate of a CA to trust"
        ),
        rustls::Error::InvalidMessage(_) => {
            format!(
                "the server at {url} does not speak TLS; if it serves plain HTTP, write http:// in WEIR_URL"
            )
        }
        other => format!("the server at {url} answers, but no connection with TLS comes about: {other}"),
    }
}

/// What TLS has against it, where that is why.
fn tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        return Some(found);
    }
    // The source of an error of input and output is not what it wraps, but the source of that.
    let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    wrapped.and_then(|wrapped| tls(wrapped)).or_else(|| error.source().and_then(tls))
}

/// The last cause, which says the most.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = cause.to_string();
        next = cause.source();
    }
    text
}
