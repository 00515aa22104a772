//! What came out, one row for each pair.

use std::fmt;
use std::time::Duration;

use comfy_table::presets::ASCII_MARKDOWN;
use serde::Serialize;

/// Which way a figure is good.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

/// What Weir is held to.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// At least so many times the twin.
    Times(f64),
    /// At most this figure.
    AtMost(f64),
}

/// One figure of Weir's and its twin's.
#[derive(Serialize)]
pub struct Row {
    pub bench: &'static str,
    pub what: String,
    pub unit: &'static str,
    pub better: Better,
    pub weir: f64,
    pub twin: String,
    pub twins: f64,
    pub target: Option<Target>,
}

impl Row {
    /// How many times better Weir is; below 1 it is worse.
    fn times(&self) -> f64 {
        match self.better {
            Better::Higher => self.weir / self.twins,
            Better::Lower => self.twins / self.weir,
        }
    }

    fn verdict(&self) -> String {
        let told = |target: String, met: bool| format!("{target}: {}", if met { "met" } else { "MISSED" });
        match self.target {
            None => String::new(),
            Some(Target::Times(times)) => told(format!("≥ {times}×"), self.times() >= times),
            Some(Target::AtMost(most)) => {
                told(format!("≤ {} {}", figure(most), self.unit), self.weir <= most)
            }
        }
    }
}

#[derive(Default)]
pub struct Table(Vec<Row>);

impl Table {
    pub fn push(&mut self, row: Row) {
        eprintln!(
            "  {}: {} {} against {} ({})",
            row.what,
            figure(row.weir),
            row.unit,
            figure(row.twins),
            row.twin
        );
        self.0.push(row);
    }

    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&self.0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_preset(ASCII_MARKDOWN);
        table.set_header(["bench", "what", "Weir", "twin", "twin's", "unit", "times better", "target"]);
        for row in &self.0 {
            table.add_row([
                row.bench.to_owned(),
                row.what.clone(),
                figure(row.weir),
                row.twin.clone(),
                figure(row.twins),
                row.unit.to_owned(),
                format!("{:.2}", row.times()),
                row.verdict(),
            ]);
        }
        table.fmt(f)
    }
}

/// Three digits that count.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The value below which `share` of the values lie; 0.5 is the median.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let place = (last as f64 * share).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

pub fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

pub fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}
