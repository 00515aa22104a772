//! Which hosts a function may send requests to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// One entry of a function's `egress`: a host that it may send requests to. A name, `*.` and a name for all below it,
/// or an address (IPv6 in brackets), each with `:port` or else for the scheme's own port, 80 or 443.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    host: Host,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Name(String),
    Below(String),
    Address(IpAddr),
}

impl HostPattern {
    /// Whether it lets a request through to `host` and `port`, with a scheme whose own port is `default_port`.
    pub fn allows(&self, host: &str, port: u16, default_port: u16) -> bool {
        if port != self.port.unwrap_or(default_port) {
            return false;
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        match &self.host {
            Host::Name(name) => host == *name,
            Host::Below(name) => {
                host.strip_suffix(name.as_str()).is_some_and(|label| label.len() > 1 && label.ends_with('.'))
            }
            Host::Address(address) => literal(&host) == Some(*address),
        }
    }

    /// Whether it lets every request through that `other` does. A port that is written is another than none, also where it
    /// is a scheme's own: it is that port for all schemes.
    pub fn covers(&self, other: &Self) -> bool {
        let below = |name: &str, of: &str| name.strip_suffix(of).is_some_and(|label| label.ends_with('.'));
        self.port == other.port
            && match (&self.host, &other.host) {
                (Host::Below(of), Host::Name(name)) => below(name, of),
                (Host::Below(of), Host::Below(name)) => name == of || below(name, of),
                (mine, theirs) => mine == theirs,
            }
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        read(text).map_err(|why| {
            let shown: String = text.chars().take(80).collect();
            format!("`{}` is not a host for `egress`: {why}", shown.escape_default())
        })
    }
}

fn read(text: &str) -> Result<HostPattern, &'static str> {
    if text.contains("://") {
        return Err("leave out the scheme, the host stands for http and https");
    }
    if text.contains(['/', '?', '#', '\\']) {
        return Err("leave out the path, a host is allowed as a whole");
    }
    if text.contains('@') {
        return Err("leave out the user");
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err("put an IPv6 address in brackets");
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (inner, port) = rest.split_once(']').ok_or("close the bracket")?;
        let address: Ipv6Addr = inner.parse().map_err(|_| "between the brackets is no IPv6 address")?;
        (Host::Address(IpAddr::V6(address).to_canonical()), port)
    } else {
        let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        (named(host)?, port)
    };
    if port.is_empty() {
        return Ok(HostPattern { host, port: None });
    }
    let digits = port.strip_prefix(':').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(port) if port != 0 => Ok(HostPattern { host, port: Some(port) }),
        _ => Err("a port is a number from 1 to 65535"),
    }
}

fn named(host: &str) -> Result<Host, &'static str> {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(Host::Address(address.into()));
    }
    let below = host.strip_prefix("*.");
    let name = below.unwrap_or(&host);
    if name.contains('*') {
        return Err("`*` may only be the whole first label, as in `*.example.com`");
    }
    if name.len() > 253 || !name.split('.').all(label) {
        return Err(
            "a name is made of labels of 1 to 63 letters, digits, `-` and `_`, with dots between them",
        );
    }
    // The URL parser reads such a name as an address, so it could never match.
    let last = name.rsplit('.').next().unwrap_or(name);
    let hex = last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    if hex || last.bytes().all(|b| b.is_ascii_digit()) {
        return Err("write an IPv4 address as four decimal numbers");
    }
    match below {
        Some(name) if !name.contains('.') => Err("two labels or more follow `*.`"),
        Some(name) => Ok(Host::Below(name.to_owned())),
        None => Ok(Host::Name(host)),
    }
}

fn label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => f.write_str(name)?,
            Host::Below(name) => write!(f, "*.{name}")?,
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The address that a URL's host is, if it is one, with an IPv4 address inside IPv6 as that IPv4 address.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_what_is_within_it() {
        for (wide, narrow, covers) in [
            ("api.example.com", "API.example.com.", true),
            ("api.example.com", "b.example.com", false),
            ("api.example.com", "api.example.com:8443", false),
            ("api.example.com:8443", "api.example.com:8443", true),
            ("api.example.com:8443", "api.example.com", false),
            ("*.example.com", "api.example.com", true),
            ("*.example.com", "b.api.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "badexample.com", false),
            ("*.example.com", "*.example.com", true),
            ("*.example.com", "*.api.example.com", true),
            ("*.api.example.com", "*.example.com", false),
            ("api.example.com", "*.example.com", false),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "[::ffff:192.0.2.1]", true),
            ("192.0.2.1", "192.0.2.2", false),
        ] {
            let [wide, narrow] = [wide, narrow].map(|text| text.parse::<HostPattern>().unwrap());
            assert_eq!(wide.covers(&narrow), covers, "{wide} {narrow}");
        }
    }

    #[test]
    fn a_pattern_allows_what_it_names() {
        for (pattern, host, port, own, allowed) in [
            ("api.example.com", "api.example.com", 443, 443, true),
            ("api.example.com", "api.example.com", 80, 80, true),
            ("API.Example.com.", "Api.example.COM.", 443, 443, true),
            ("api.example.com", "api.example.com", 8443, 443, false),
            ("api.example.com", "api.example.com", 443, 80, false),
            ("api.example.com", "b.api.example.com", 443, 443, false),
            ("api.example.com:8443", "api.example.com", 8443, 443, true),
            ("api.example.com:8443", "api.example.com", 443, 443, false),
            ("*.example.com", "a.example.com", 443, 443, true),
            ("*.example.com", "a.b.example.com", 443, 443, true),
            ("*.example.com", "example.com", 443, 443, false),
            ("*.example.com", ".example.com", 443, 443, false),
            ("*.example.com", "notexample.com", 443, 443, false),
            ("*.example.com", "a.example.com.evil.net", 443, 443, false),
            ("*.example.com:81", "a.example.com", 81, 80, true),
            ("192.0.2.7", "192.0.2.7", 80, 80, true),
            ("192.0.2.7", "[::ffff:c000:207]", 80, 80, true),
            ("192.0.2.7", "192.0.2.70", 80, 80, false),
            ("[2001:DB8::1]:8443", "[2001:db8::1]", 8443, 443, true),
            ("[2001:db8::1]:8443", "[2001:db8::2]", 8443, 443, false),
        ] {
            let read: HostPattern = pattern.parse().unwrap();
            assert_eq!(read.allows(host, port, own), allowed, "{pattern} and {host}:{port}");
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        let read: HostPattern = serde_json::from_str("\"*.Example.com:81\"").unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), "\"*.example.com:81\"");
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_reason() {
        for (text, why) in [
            ("http://example.com", "leave out the scheme"),
            ("example.com/v1", "leave out the path"),
            ("a@example.com", "leave out the user"),
            ("[2001:db8::1", "close the bracket"),
            ("[192.0.2.7]", "no IPv6 address"),
            ("[::1]8443", "a port is a number"),
            ("2001:db8::1", "put an IPv6 address in brackets"),
            ("example.com:", "a port is a number"),
            ("example.com:0", "a port is a number"),
            ("example.com:+80", "a port is a number"),
            ("example.com:65536", "a port is a number"),
            ("*", "`*` may only be"),
            ("*.", "`*` may only be"),
            ("a.*.example.com", "`*` may only be"),
            ("*a.example.com", "`*` may only be"),
            ("*.*.example.com", "`*` may only be"),
            ("*.com", "two labels or more"),
            ("*.0.0.1", "four decimal numbers"),
            ("127.1", "four decimal numbers"),
            ("0x7f.0x1", "four decimal numbers"),
            ("2130706433", "four decimal numbers"),
            ("", "made of labels"),
            ("a..example.com", "made of labels"),
            (".example.com", "made of labels"),
            ("-a.example.com", "made of labels"),
            ("a b.example.com", "made of labels"),
            ("b\u{fc}cher.example", "made of labels"),
        ] {
            let error = text.parse::<HostPattern>().unwrap_err();
            let begin = format!("`{}` is not a host for `egress`: ", text.escape_default());
            assert!(error.starts_with(&begin) && error.contains(why), "{text}: {error}");
        }
    }
}
