//! Durations and sizes as people write them: `"250ms"`, `"64MiB"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes. Read from an integer or a string with a unit; written as an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    pub const fn mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The size as a length in memory, or the longest possible one.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1024 { write!(f, "{} bytes", self.0) } else { bytesize::ByteSize::b(self.0).fmt(f) }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = bytesize::ByteSize::from_str(text);
        parsed.map(|size| Self(size.as_u64())).map_err(|_| {
            format!("`{text}` is not a size: write bytes, or a number with a unit such as \"64MiB\"")
        })
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;
        impl Visitor<'_> for Sizes {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or a string such as \"64MiB\"")
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size cannot be negative"))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Sizes)
    }
}

/// For `#[serde(with = "units::span")]`: a duration as a string such as `"30s"`.
pub mod span {
    use super::{Deserialize, Deserializer, Duration, Serializer, de};

    /// # Errors
    /// A sentence that names the text.
    pub fn parse(text: &str) -> Result<Duration, String> {
        humantime::parse_duration(text).map_err(|_| {
            format!("`{text}` is not a duration: write a number with a unit, such as \"250ms\" or \"30s\"")
        })
    }

    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*span))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).map_err(de::Error::custom)
    }

    /// The same for one that may be absent.
    pub mod optional {
        use super::super::{Deserialize, Deserializer, Duration, Serializer, de};
        use super::parse;

        pub fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
            match span {
                Some(span) => serializer.collect_str(&humantime::format_duration(*span)),
                None => serializer.serialize_none(),
            }
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
            let text = Option::<String>::deserialize(deserializer)?;
            text.map(|text| parse(&text).map_err(de::Error::custom)).transpose()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_both_forms_and_written_exactly() {
        let read = |text: &str| serde_json::from_str::<Size>(text);
        assert_eq!(read("\"64MiB\"").unwrap(), Size::mib(64));
        assert_eq!(read("1000001").unwrap(), Size::bytes(1_000_001));
        assert_eq!(serde_json::to_string(&Size::bytes(1_000_001)).unwrap(), "1000001");
        assert!(read("-1").unwrap_err().to_string().contains("negative"));
        assert!(read("\"many\"").unwrap_err().to_string().contains("`many` is not a size"));
    }

    #[test]
    fn spans_are_strings() {
        assert_eq!(span::parse("250ms").unwrap(), Duration::from_millis(250));
        assert!(span::parse("250").unwrap_err().contains("`250` is not a duration"));
    }
}
