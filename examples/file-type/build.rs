//! Turns the model's own description of itself, which lies beside the model and is not part of this
//! repository, into the tables that `src/kinds.rs` includes: sizes, content types, and what each of the
//! model's classes stands for.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// `config.min.json`.
#[derive(Deserialize)]
struct Config {
    beg_size: usize,
    mid_size: usize,
    end_size: usize,
    use_inputs_at_offsets: bool,
    medium_confidence_threshold: f64,
    min_file_size_for_dl: usize,
    padding_token: i32,
    block_size: usize,
    target_labels_space: Vec<String>,
    thresholds: BTreeMap<String, f64>,
    overwrite_map: BTreeMap<String, String>,
}

/// An entry of `content_types_kb.min.json`; what is null there has a default.
#[derive(Deserialize)]
struct ContentType {
    mime_type: Option<String>,
    group: Option<String>,
    description: Option<String>,
    is_text: bool,
}

fn main() {
    println!("cargo::rerun-if-env-changed=WEIR_MODELS");
    if let Err(error) = run() {
        println!("cargo::error={error}");
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let models = match env::var_os("WEIR_MODELS") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../models"),
    };
    let config: Config = read(&models.join("magika/config.min.json"))?;
    let types: BTreeMap<String, ContentType> = read(&models.join("magika/content_types_kb.min.json"))?;
    if config.mid_size != 0 || config.use_inputs_at_offsets {
        return Err("this version of the model takes inputs that this example does not make".into());
    }
    fs::write(Path::new(&env::var("OUT_DIR")?).join("tables.rs"), tables(&config, &types)?)?;
    Ok(())
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", path.display());
    let fix = "run `make models`, or set WEIR_MODELS to the full path of the folder that has `magika/`";
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}: {fix}", path.display()))?;
    Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}: {fix}", path.display()))?)
}

fn tables(config: &Config, types: &BTreeMap<String, ContentType>) -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    writeln!(out, "pub const HEAD_TOKENS: usize = {};", config.beg_size)?;
    writeln!(out, "pub const TAIL_TOKENS: usize = {};", config.end_size)?;
    writeln!(out, "pub const BLOCK_BYTES: usize = {};", config.block_size)?;
    writeln!(out, "pub const MIN_BYTES: usize = {};", config.min_file_size_for_dl)?;
    writeln!(out, "pub const PADDING: i32 = {};", config.padding_token)?;
    for (name, label) in [("EMPTY", "empty"), ("TEXT", "txt"), ("UNKNOWN", "unknown")] {
        writeln!(out, "pub const {name}: Kind = {};", kind(label, types)?)?;
    }
    writeln!(out, "pub static CLASSES: [Class; {}] = [", config.target_labels_space.len())?;
    for label in &config.target_labels_space {
        let threshold = config.thresholds.get(label).copied().unwrap_or(config.medium_confidence_threshold);
        let kind = kind(config.overwrite_map.get(label).unwrap_or(label), types)?;
        writeln!(out, "    Class {{ label: {label:?}, threshold: {threshold:?}, kind: {kind} }},")?;
    }
    writeln!(out, "];")?;
    Ok(out)
}

/// The `Kind` named `label`, as Rust.
fn kind(label: &str, types: &BTreeMap<String, ContentType>) -> Result<String, Box<dyn Error>> {
    let found = types.get(label).ok_or_else(|| format!("no content type is named {label}"))?;
    let default_mime_type = if found.is_text { "text/plain" } else { "application/octet-stream" };
    Ok(format!(
        "Kind {{ label: {label:?}, mime_type: {:?}, group: {:?}, description: {:?}, is_text: {} }}",
        found.mime_type.as_deref().unwrap_or(default_mime_type),
        found.group.as_deref().unwrap_or("unknown"),
        found.description.as_deref().unwrap_or(label),
        found.is_text,
    ))
}
