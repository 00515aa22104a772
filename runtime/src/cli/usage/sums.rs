//! Sums of usage: as a table, as bars, or as the server gives them.

use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::Value;

use super::Which;
use crate::cli::Context;
use crate::cli::client::{Failure, broken};
use crate::cli::output::{self, Fields};

/// How wide the longest bar is.
const WIDTH: u32 = 40;

#[derive(Args)]
pub struct Sums {
    #[command(flatten)]
    which: Which,
    /// What it is summed up by, with commas between them: tenant, kind, function, revision, key, class, outcome, device, model
    #[arg(long, value_name = "NAMES")]
    by: Option<String>,
    /// Summed up by spans of time, in UTC
    #[arg(long)]
    bucket: Option<Bucket>,
    /// As a table, as CSV with all quantities, as JSON, one row a line, or with costs in the columns of FOCUS
    #[arg(long, default_value = "table")]
    format: Format,
    /// Bars of one quantity: calls, device_ns, guest_cpu_ns, …
    #[arg(long, value_name = "QUANTITY", num_args = 0..=1, default_missing_value = "calls")]
    chart: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bucket {
    Minute,
    Hour,
    Day,
    Month,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Csv,
    Jsonl,
    Focus,
}

impl Sums {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let mut query = self.which.query();
        query.extend(self.by.iter().map(|by| ("by", by.clone())));
        if let Some(bucket) = self.bucket.and_then(|bucket| bucket.to_possible_value()) {
            query.push(("bucket", bucket.get_name().to_owned()));
        }
        let as_csv = match self.format {
            Format::Csv => Some("csv"),
            Format::Focus => Some("focus"),
            Format::Table | Format::Jsonl => None,
        };
        if let Some(format) = as_csv {
            query.push(("format", format.to_owned()));
            let request = context.client.request(Method::GET, "/v1/usage").query(&query);
            let response = context.client.send(request).await?;
            if !response.status().is_success() {
                return Err(context.client.refusal(response).await);
            }
            let table = response.text().await.map_err(|error| broken(&error))?;
            output::line(table.trim_end());
            return Ok(());
        }
        query.push(("limit", "1000".to_owned()));
        let (mut rows, mut after) = (Vec::new(), None);
        let mut answer = loop {
            let asked = query.iter().cloned().chain(after.map(|after| ("after", after)));
            let asked: Vec<_> = asked.collect();
            let request = context.client.request(Method::GET, "/v1/usage").query(&asked);
            let page = context.client.json(request).await?;
            rows.extend(page.at("rows").as_array().into_iter().flatten().cloned());
            after = page.at("next").as_str().map(str::to_owned);
            if after.is_none() {
                break page;
            }
        };
        if context.json {
            if let Some(answer) = answer.as_object_mut() {
                answer.insert("rows".to_owned(), rows.into());
            }
            output::json(&answer);
        } else if self.format == Format::Jsonl {
            rows.iter().for_each(|row| output::line(row.to_string()));
        } else {
            eprintln!("{} to {}", output::text(answer.at("from")), output::text(answer.at("to")));
            let label = |row: &Value| label(row, self.bucket.is_some());
            match &self.chart {
                Some(quantity) => chart(&rows, quantity, label),
                None => table(&rows, label),
            }
        }
        Ok(())
    }
}

/// What a row is of.
fn label(row: &Value, with_time: bool) -> String {
    let start = with_time.then(|| output::text(row.at("start")));
    let by = row.at("by").as_object().into_iter().flat_map(|by| by.values());
    let by = by.map(output::text).map(|text| if text.is_empty() { "-".to_owned() } else { text });
    let parts: Vec<String> = start.into_iter().chain(by).collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join(" ") }
}

fn number(row: &Value, quantity: &str) -> u64 {
    row.at("sums").at(quantity).as_u64().unwrap_or(0)
}

fn table(rows: &[Value], label: impl Fn(&Value) -> String) {
    let seconds = |row: &Value, quantity: &str| format!("{:.3}", number(row, quantity) as f64 / 1e9);
    // Bytes × milliseconds.
    let gib_seconds = |row: &Value, quantity: &str| {
        format!("{:.3}", number(row, quantity) as f64 / (1u64 << 30) as f64 / 1e3)
    };
    let shown = rows.iter().map(|row| {
        [
            label(row),
            number(row, "calls").to_string(),
            number(row, "inferences").to_string(),
            seconds(row, "device_ns"),
            seconds(row, "guest_cpu_ns"),
            gib_seconds(row, "memory_byte_ms"),
            gib_seconds(row, "host_memory_byte_ms"),
            number(row, "loads").to_string(),
            number(row, "cold_starts").to_string(),
            output::size(&number(row, "egress_bytes").into()),
        ]
    });
    let header = [
        "OF",
        "CALLS",
        "INFERENCES",
        "DEVICE s",
        "GUEST CPU s",
        "DEVICE GiB·s",
        "HOST GiB·s",
        "LOADS",
        "COLD STARTS",
        "EGRESS",
    ];
    output::table(header, shown);
}

fn chart(rows: &[Value], quantity: &str, label: impl Fn(&Value) -> String) {
    let most = rows.iter().map(|row| number(row, quantity)).max().unwrap_or(0).max(1);
    let bars = rows.iter().map(|row| {
        let value = number(row, quantity);
        let eighths = u128::from(value) * u128::from(WIDTH) * 8 / u128::from(most);
        [label(row), bar(usize::try_from(eighths).unwrap_or(0)), value.to_string()]
    });
    output::table(["OF", "", quantity], bars);
}

/// A bar of so many eighths of a character.
fn bar(eighths: usize) -> String {
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"].get(eighths % 8).copied().unwrap_or_default();
    "█".repeat(eighths / 8) + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bars_are_as_long_as_what_they_show() {
        assert_eq!([bar(0), bar(4), bar(8), bar(17)], ["", "▌", "█", "██▏"]);
    }

    #[test]
    fn rows_say_what_they_are_of() {
        let row =
            json!({ "start": "2026-12-03T10:00:00Z", "by": { "function": "f", "model": "" }, "sums": {} });
        assert_eq!(label(&row, true), "2026-12-03T10:00:00Z f -");
        assert_eq!(label(&json!({ "by": {} }), false), "all");
    }
}
