//! Attributes: a name and a value, as OTLP has them.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

/// An attribute that is a text.
pub fn text(name: &str, text: impl Into<String>) -> KeyValue {
    of(name, Value::StringValue(text.into()))
}

/// An attribute that is a number. OTLP's are signed.
pub fn number(name: &str, number: u64) -> KeyValue {
    of(name, Value::IntValue(i64::try_from(number).unwrap_or(i64::MAX)))
}

pub fn boolean(name: &str, truth: bool) -> KeyValue {
    of(name, Value::BoolValue(truth))
}

pub fn of(name: &str, value: Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(any(value)), ..KeyValue::default() }
}

pub fn any(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}
