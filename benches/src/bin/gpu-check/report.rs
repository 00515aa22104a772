//! What came out: a row for each thing that was looked at, and one table of all of them.

use comfy_table::presets::ASCII_MARKDOWN;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    Ok,
    Failed,
    /// Why not.
    NotRun(String),
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub part: String,
    pub what: String,
    pub measured: String,
    pub bound: String,
    pub verdict: Verdict,
}

/// What a part's process tells the one that started it, a line each.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    Row(Row),
    /// There is no GPU, and why.
    NoGpu(String),
    /// The part has come to its end.
    Done,
}

impl Said {
    pub fn say(&self) {
        if let Ok(line) = serde_json::to_string(self) {
            println!("{line}");
        }
    }
}

impl Row {
    /// Something with a bound that is kept or not.
    pub fn judged(part: &str, what: &str, measured: String, bound: String, kept: bool) -> Self {
        let verdict = if kept { Verdict::Ok } else { Verdict::Failed };
        Self { part: part.to_owned(), what: what.to_owned(), measured, bound, verdict }
    }

    /// Something that could not be looked at, but ought to be.
    pub fn failed(part: &str, what: &str, why: &str) -> Self {
        Self::judged(part, what, why.to_owned(), String::new(), false)
    }

    pub fn not_run(part: &str, what: &str, why: &str) -> Self {
        let verdict = Verdict::NotRun(why.to_owned());
        let nothing = String::new;
        Self { part: part.to_owned(), what: what.to_owned(), measured: nothing(), bound: nothing(), verdict }
    }

    fn cells(&self) -> [String; 5] {
        let verdict = match &self.verdict {
            Verdict::Ok => "ok".to_owned(),
            Verdict::Failed => "FAILED".to_owned(),
            Verdict::NotRun(why) => format!("not run: {why}"),
        };
        [&self.part, &self.what, &self.measured, &self.bound, &verdict].map(|text| one_line(text))
    }

    pub fn is_failure(&self) -> bool {
        self.verdict == Verdict::Failed
    }
}

/// Prints the table, and below it how many rows came to what.
pub fn print(rows: &[Row]) {
    let mut table = comfy_table::Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header(["part", "what", "measured", "bound", "verdict"]);
    for row in rows {
        table.add_row(row.cells());
    }
    let failed = rows.iter().filter(|row| row.is_failure()).count();
    let kept = rows.iter().filter(|row| row.verdict == Verdict::Ok).count();
    println!("{table}");
    println!("{kept} ok, {failed} FAILED, {} not run", rows.len().saturating_sub(kept + failed));
}

/// Errors of the engine and the driver have lines, and some are long.
fn one_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "/");
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Bytes as a person reads them.
pub fn size(bytes: u64) -> String {
    const KIB: f64 = 1024.0;
    match bytes as f64 {
        few if few < KIB => format!("{bytes} B"),
        some if some < KIB * KIB => format!("{:.1} KiB", some / KIB),
        more if more < KIB * KIB * KIB => format!("{:.1} MiB", more / KIB / KIB),
        many => format!("{:.2} GiB", many / KIB / KIB / KIB),
    }
}

/// Milliseconds as a person reads them.
pub fn time(millis: f64) -> String {
    if millis < 1.0 { format!("{:.0} µs", millis * 1e3) } else { format!("{millis:.2} ms") }
}
