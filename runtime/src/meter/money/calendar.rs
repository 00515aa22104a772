//! Hours, by which usage is kept and prices change, and months, for which it is billed. All of it is UTC.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use time::format_description::well_known::Rfc3339;
use time::{Date, OffsetDateTime};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// Milliseconds of an hour.
const MILLIS: u64 = HOUR * 1000;

/// The start of an hour: hours since 1970. Written as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hour(pub u64);

/// A month of the calendar, as `2026-11`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month {
    year: i32,
    /// 1 to 12.
    month: u8,
}

impl Hour {
    const PATTERN: &str = "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):00:00Z$";

    /// The hour that a moment is in: milliseconds since 1970.
    pub fn of(millis: u64) -> Self {
        Self(millis / MILLIS)
    }

    /// When it starts, in milliseconds since 1970.
    pub fn millis(self) -> u64 {
        self.0.saturating_mul(MILLIS)
    }

    fn date(self) -> OffsetDateTime {
        let seconds = i64::try_from(self.0.saturating_mul(HOUR)).unwrap_or(i64::MAX);
        // Beyond the year 9999 there is nothing to bill.
        OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }
}

impl fmt::Display for Hour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.date();
        let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:00:00Z", at.hour())
    }
}

impl FromStr for Hour {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = OffsetDateTime::parse(text, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp_nanos);
        let seconds = seconds.filter(|nanos| nanos % 1_000_000_000 == 0).map(|nanos| nanos / 1_000_000_000);
        match seconds.and_then(|seconds| u64::try_from(seconds).ok()) {
            Some(seconds) if seconds % HOUR == 0 => Ok(Self(seconds / HOUR)),
            _ => {
                let shown: String = text.chars().take(40).collect();
                Err(format!(
                    "`{}` is not the start of an hour: write it as 2026-11-01T00:00:00Z",
                    shown.escape_default()
                ))
            }
        }
    }
}

impl Month {
    const PATTERN: &str = "^[0-9]{4}-(0[1-9]|1[0-2])$";

    /// The month that an hour is in.
    pub fn of(hour: Hour) -> Self {
        let at = hour.date();
        Self { year: at.year(), month: at.month().into() }
    }

    /// Its first hour.
    pub fn start(self) -> Hour {
        let first = time::Month::try_from(self.month)
            .and_then(|month| Date::from_calendar_date(self.year, month, 1))
            .map_or(0, |date| date.midnight().assume_utc().unix_timestamp());
        Hour(u64::try_from(first).unwrap_or(0) / HOUR)
    }

    /// The first hour that is not in it any more.
    pub fn end(self) -> Hour {
        self.next().start()
    }

    pub fn next(self) -> Self {
        match self.month {
            12 => Self { year: self.year.saturating_add(1), month: 1 },
            month => Self { month: month.saturating_add(1), ..self },
        }
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

impl FromStr for Month {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (year, month) = text.split_once('-')?;
            let digits = |text: &str, many: usize| {
                text.len() == many && text.bytes().all(|byte| byte.is_ascii_digit())
            };
            if !digits(year, 4) || !digits(month, 2) {
                return None;
            }
            let (year, month): (i32, u8) = (year.parse().ok()?, month.parse().ok()?);
            // The last month ends where times that can be written do.
            ((1970..9999).contains(&year) && (1..=12).contains(&month)).then_some(Self { year, month })
        };
        read().ok_or_else(|| {
            let shown: String = text.chars().take(20).collect();
            format!("`{}` is not a month: write it as 2026-11", shown.escape_default())
        })
    }
}

macro_rules! as_text {
    ($($type:ident, $what:literal, $example:literal;)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": $what,
                    "type": "string",
                    "pattern": Self::PATTERN,
                    "examples": [$example],
                })
            }
        }
    )*};
}

as_text! {
    Hour, "The start of an hour: RFC 3339, UTC. From 1970 on.", "2026-11-01T00:00:00Z";
    Month, "A month of the calendar, UTC. 1970 to 9998.", "2026-11";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_end_where_the_calendar_says() {
        for (month, start, end) in [
            ("1970-01", "1970-01-01T00:00:00Z", "1970-02-01T00:00:00Z"),
            ("2026-02", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"),
            ("2028-02", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
            ("2026-12", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("9998-12", "9998-12-01T00:00:00Z", "9999-01-01T00:00:00Z"),
        ] {
            let read: Month = month.parse().unwrap();
            assert_eq!(read.to_string(), month);
            assert_eq!((read.start().to_string().as_str(), read.end().to_string().as_str()), (start, end));
            assert_eq!(Month::of(read.start()), read);
            assert_eq!(Month::of(Hour(read.end().0 - 1)), read);
            assert_eq!(Month::of(read.end()), read.next());
        }
        let days = |month: &str| {
            let month: Month = month.parse().unwrap();
            (month.end().0 - month.start().0) / 24
        };
        assert_eq!(["2026-02", "2028-02", "2026-04", "2026-12"].map(days), [28, 29, 30, 31]);
        for wrong in
            ["", "2026", "2026-13", "2026-00", "2026-1", "1969-12", "9999-01", "+026-01", "2026-11-01"]
        {
            assert!(wrong.parse::<Month>().unwrap_err().contains("is not a month"), "{wrong}");
        }
    }

    #[test]
    fn an_hour_is_one_that_starts() {
        let hour: Hour = "2026-11-30T23:00:00Z".parse().unwrap();
        assert_eq!(hour.to_string(), "2026-11-30T23:00:00Z");
        assert_eq!(Hour::of(hour.millis()), hour);
        assert_eq!(Hour::of(hour.millis() + MILLIS - 1), hour);
        assert_eq!(Hour::of(hour.millis() + MILLIS).to_string(), "2026-12-01T00:00:00Z");
        assert_eq!("2026-12-01T01:00:00+01:00".parse(), Ok(Hour(hour.0 + 1)), "an offset is read");
        for wrong in
            ["", "2026-11-01", "2026-11-01T00:30:00Z", "2026-11-01T00:00:00.5Z", "1969-12-31T23:00:00Z"]
        {
            assert!(wrong.parse::<Hour>().unwrap_err().contains("is not the start of an hour"), "{wrong}");
        }
    }
}
