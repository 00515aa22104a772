//! The most that a function's configuration may ask for, by a policy. The operator's `[limits]` hold beside it, for all.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use super::Violation;
use crate::function::FunctionConfig;
use crate::units::{Size, span};

/// A duration as documents have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(Duration);

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        span::parse(&text).map(Self).map_err(de::Error::custom)
    }
}

macro_rules! most {
    ($($field:ident: $type:ty = $($asked:ident).+;)*) => {
        /// The most of each value; absent ones are not restricted. The names are those of a function's configuration.
        #[derive(Debug, Clone, Copy, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Most { $($field: Option<$type>,)* }

        impl Most {
            /// These, with the defaults' where they say nothing.
            pub fn over(self, defaults: &Self) -> Self {
                Self { $($field: self.$field.or(defaults.$field),)* }
            }

            /// The values that are above.
            pub fn violations(self, config: &FunctionConfig) -> impl Iterator<Item = Violation> {
                [$(above(
                    concat!("limits.", stringify!($field)),
                    <$type>::from(config.$($asked).+),
                    self.$field,
                ),)*]
                .into_iter()
                .flatten()
            }

            #[cfg(test)]
            pub const FIELDS: &[&str] = &[$(stringify!($field),)*];
        }
    };
}

most! {
    memory: Size = limits.memory;
    table_elements: u32 = limits.table_elements;
    instances: u32 = limits.instances;
    memories: u32 = limits.memories;
    tables: u32 = limits.tables;
    cpu_time: Span = limits.cpu_time;
    request_bytes: Size = limits.request_bytes;
    response_bytes: Size = limits.response_bytes;
    header_bytes: Size = limits.header_bytes;
    host_bytes: Size = limits.host_bytes;
    resources: u32 = limits.resources;
    log_bytes: Size = limits.log_bytes;
    log_bytes_per_second: Size = limits.log_bytes_per_second;
    outbound_requests: u32 = limits.outbound_requests;
    max_concurrency: NonZeroU32 = max_concurrency;
    max_queue: u32 = max_queue;
    request_timeout: Span = request_timeout;
    startup_timeout: Span = startup_timeout;
    idle_timeout: Span = idle_timeout;
    reuse: NonZeroU32 = reuse;
}

fn above<T: PartialOrd + fmt::Display>(rule: &'static str, asked: T, most: Option<T>) -> Option<Violation> {
    let most = most.filter(|most| asked > *most)?;
    Some(Violation { rule, asked: asked.to_string(), allowed: vec![most.to_string()] })
}
