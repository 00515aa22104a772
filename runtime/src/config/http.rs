//! How clients connect, and by which names functions are found.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hosts::check_host;
use crate::units::{Size, span};

/// Connections of clients.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// The most at one time; more wait to be accepted.
    pub connections: NonZeroUsize,
    /// The most bytes of a request's head.
    pub head_bytes: Size,
    /// How long a connection may take to send a request's head, or be idle between two.
    #[serde(with = "span")]
    pub head_timeout: Duration,
    /// How long a client may leave an answer unread.
    #[serde(with = "span")]
    pub write_timeout: Duration,
    /// How long an upload's body may take.
    #[serde(with = "span")]
    pub upload_timeout: Duration,
    /// Below which each function has a host name, `{function}.{tenant}.{domain}`; none has one when absent.
    pub domain: Option<String>,
    /// Other host names that functions may have: names, or `*.` and a name for all below it.
    pub hostnames: Vec<String>,
}

impl HttpConfig {
    /// Whether a function may have this host name of its own.
    pub fn allows_host(&self, name: &str) -> bool {
        let is_below = |domain: &str| name.strip_suffix(domain).is_some_and(|label| label.ends_with('.'));
        let is_the_servers = self.domain.as_deref().is_some_and(|domain| name == domain || is_below(domain));
        let allows = |pattern: &String| match pattern.strip_prefix("*.") {
            Some(domain) => is_below(domain),
            None => name == pattern,
        };
        !is_the_servers && self.hostnames.iter().any(allows)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(domain) = &self.domain {
            // One label is a domain too: `localhost` is.
            check_host(&format!("x.{domain}")).map_err(|_| {
                format!("http.domain: `{}` is not a domain in small letters", domain.escape_default())
            })?;
        }
        for pattern in &self.hostnames {
            let name = pattern.strip_prefix("*.").unwrap_or(pattern);
            check_host(name).map_err(|reason| format!("http.hostnames: {reason}"))?;
        }
        Ok(())
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            connections: NonZeroUsize::MIN.saturating_add(9_999),
            head_bytes: Size::bytes(64 << 10),
            head_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            upload_timeout: Duration::from_secs(600),
            domain: None,
            hostnames: vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_host_names_that_the_operator_allows() {
        let (domain, hostnames) =
            (Some("weir.example".to_owned()), ["*.example".to_owned(), "a.b".to_owned()]);
        let config = HttpConfig { domain, hostnames: hostnames.into(), ..HttpConfig::default() };
        for (name, allowed) in [
            ("a.b", true),
            ("c.example", true),
            ("d.c.example", true),
            ("example", false),
            ("x.a.b", false),
            ("cexample", false),
            ("weir.example", false),
            ("f.t.weir.example", false),
        ] {
            assert_eq!(config.allows_host(name), allowed, "{name}");
        }
        assert!(!HttpConfig::default().allows_host("a.b"));
    }
}
