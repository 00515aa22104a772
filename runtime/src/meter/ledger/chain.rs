//! The chain of a tenant's records: each has a number, one more than the record before, and a hash over the hash before it and
//! its own text.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::audit;

/// The newest record of each tenant.
pub type Heads = HashMap<Arc<str>, Head>;

/// Where a tenant's chain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The number of its newest record: records are numbered from 1, without a gap.
    pub seq: u64,
    pub hash: Hash,
}

impl Head {
    /// The head after one more record, of which this is the text.
    pub fn next(&self, record: &[u8]) -> Self {
        Self { seq: self.seq.saturating_add(1), hash: self.hash.next(record) }
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

/// A SHA-256 in lower-case hex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 64]);

impl Hash {
    /// As the audit log does it: over the hash before, in hex, and the text.
    fn next(&self, record: &[u8]) -> Self {
        Self(audit::linked(&self.0, record))
    }

    pub fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

/// The hash before the first record.
impl Default for Hash {
    fn default() -> Self {
        Self([b'0'; 64])
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_hex = |bytes: &[u8; 64]| bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let bytes = <[u8; 64]>::try_from(text.as_bytes()).ok().filter(is_hex);
        bytes.map(Self).ok_or_else(|| format!("`{text}` is no SHA-256 in lower-case hex"))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Hex;
        impl Visitor<'_> for Hex {
            type Value = Hash;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("64 hex digits")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Hash, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Hex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_over_all_before_it() {
        let first = Head::default().next(b"one");
        let second = first.next(b"two");
        assert_eq!(second.seq, 2);
        assert_eq!(second.hash.to_string(), audit::link(&audit::link(audit::START, "one"), "two"));
        let read: Head = serde_json::from_str(&serde_json::to_string(&second).unwrap()).unwrap();
        assert_eq!(read, second);
        assert!(format!("{:?}", "é".repeat(32).parse::<Hash>()).contains("is no SHA-256"));
    }
}
