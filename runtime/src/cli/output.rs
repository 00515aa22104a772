//! Tables and JSON.

use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

/// Prints a line to stdout. A reader that has gone (`| head`) is no error.
pub fn line(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stdout(), "{}", text.as_ref());
}

pub fn json(value: &Value) {
    line(serde_json::to_string_pretty(value).unwrap_or_default());
}

/// A table without lines, wide as its content.
pub fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for row in table.lines() {
        line(row.trim());
    }
}

/// The fields of an answer.
pub trait Fields {
    /// The field of this name; null if it is not there.
    fn at(&self, name: &str) -> &Value;
}

impl Fields for Value {
    fn at(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&Value::Null)
    }
}

/// A JSON value as people read it: strings without quotes.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

pub fn size(value: &Value) -> String {
    value.as_u64().map_or("-".to_owned(), |bytes| weir::units::Size::bytes(bytes).to_string())
}

/// A number of nanoseconds as a time.
pub fn time(value: &Value) -> String {
    let Some(nanos) = value.as_u64() else { return "-".to_owned() };
    format!("{:.3} s", std::time::Duration::from_nanos(nanos).as_secs_f64())
}

/// Lays what was said over what was there: fields that were not said stay.
pub fn lay_over<const N: usize>(under: &Value, said: [(&str, Option<Value>); N]) -> Value {
    let mut fields = under.as_object().cloned().unwrap_or_default();
    fields.extend(said.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))));
    Value::Object(fields)
}

/// The first twelve digits of a digest, which is enough for people.
pub fn digest(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.trim_start_matches("sha256:").chars().take(12).collect()
}

/// The elements of a list.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
