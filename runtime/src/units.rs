//! Durations and sizes as people write them: `"250ms"`, `"64MiB"`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
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

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of bytes, or a text with a unit. Answers have the number.",
            "oneOf": [
                { "type": "integer", "minimum": 0, "maximum": u64::MAX },
                { "type": "string", "pattern": "^[0-9]{1,9}([.][0-9]{1,3})? ?(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)$" },
            ],
            "examples": ["64MiB", 67_108_864],
        })
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

/// A moment, in milliseconds since 1970, as text: RFC 3339, to the second. Empty for one that no calendar has.
pub fn moment(millis: u64) -> String {
    // The largest that can be written: the end of the year 9999.
    const LAST: u64 = 253_402_300_799_999;
    let at = std::time::UNIX_EPOCH.checked_add(Duration::from_millis(millis)).filter(|_| millis <= LAST);
    at.map_or_else(String::new, |at| humantime::format_rfc3339_seconds(at).to_string())
}

/// For `#[serde(with = "units::span")]`: a duration as a string such as `"30s"`.
pub mod span {
    use super::{Deserializer, Duration, Serializer, Visitor, de, fmt};

    /// # Errors
    /// A sentence that names the text.
    pub fn parse(text: &str) -> Result<Duration, String> {
        sum(text).ok_or_else(|| {
            format!("`{text}` is not a duration: write a number with a unit, such as \"250ms\" or \"30s\"")
        })
    }

    /// The sum of a text's parts, each a number with its unit. They are read one by one: as a whole, a text whose parts
    /// add up to more than a duration can be would end the reader.
    fn sum(text: &str) -> Option<Duration> {
        let (mut whole, mut rest) = (Duration::ZERO, text);
        loop {
            let unit = rest.find(|c: char| c.is_ascii_alphabetic())?;
            let (number, tail) = rest.split_at(unit);
            let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, next) = tail.split_at(end);
            let part = humantime::parse_duration(&format!("{number}{unit}")).ok()?;
            whole = whole.checked_add(part)?;
            if next.is_empty() {
                return Some(whole);
            }
            rest = next;
        }
    }

    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*span))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        deserializer.deserialize_any(Spans)
    }

    struct Spans;

    impl Visitor<'_> for Spans {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration with a unit, such as \"250ms\" or \"30s\"")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            parse(text).map_err(E::custom)
        }
    }

    /// The same for one that may be absent.
    pub mod optional {
        use super::super::{Deserialize, Deserializer, Duration, Serializer};

        pub fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
            match span {
                Some(span) => serializer.collect_str(&humantime::format_duration(*span)),
                None => serializer.serialize_none(),
            }
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
            /// One that is there.
            struct Given(Duration);

            impl<'de> Deserialize<'de> for Given {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    super::deserialize(deserializer).map(Self)
                }
            }

            Ok(Option::<Given>::deserialize(deserializer)?.map(|Given(span)| span))
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
        assert_eq!(span::parse(" 1h 1min30 s").unwrap(), Duration::from_secs(3690));
        assert_eq!(span::parse("1ms").unwrap() + span::parse("0s").unwrap(), Duration::from_millis(1));
        // The last one's parts are each a duration, and their sum is none.
        for bad in ["", "250", "s", "1 s 2", "1h-2s", "1 lightyear", "18446744073709551615s 1000000000ns"] {
            assert!(span::parse(bad).unwrap_err().contains(&format!("`{bad}` is not a duration")), "{bad}");
        }
        let read = |text: &str| span::deserialize(&mut serde_json::Deserializer::from_str(text));
        assert_eq!(read("\"5s\"").unwrap(), Duration::from_secs(5));
        let wrong = read("5").unwrap_err().to_string();
        assert!(wrong.contains("expected a duration with a unit, such as \"250ms\""), "{wrong}");
    }
}
