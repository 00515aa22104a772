//! Turns the model's vocabulary, which lies beside the model and is not part of this repository, into the
//! sorted tables that `src/vocabulary.rs` includes: a sandbox is new for each call, and should not spend it
//! on reading thirty thousand words.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

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
    let path = models.join("minilm/vocab.txt");
    println!("cargo::rerun-if-changed={}", path.display());
    let fix = "run `make models`, or set WEIR_MODELS to the full path of the folder that has `minilm/`";
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}: {fix}", path.display()))?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("tables.rs"), tables(&text)?)?;
    Ok(())
}

/// The tables, as Rust, of a vocabulary with a token on each line, whose number is its id.
fn tables(text: &str) -> Result<String, Box<dyn Error>> {
    let (mut starts, mut continuations) = (vec![], vec![]);
    for (id, token) in text.lines().enumerate() {
        let id = u16::try_from(id)?;
        match token.strip_prefix("##") {
            Some(rest) if !rest.is_empty() => continuations.push((rest, id)),
            _ => starts.push((token, id)),
        }
    }
    let mut out = String::new();
    for (name, table) in [("STARTS", &mut starts), ("CONTINUATIONS", &mut continuations)] {
        table.sort_unstable();
        writeln!(out, "static {name}: [(&str, u16); {}] = {table:?};", table.len())?;
    }
    for name in ["PAD", "UNK", "CLS", "SEP", "MASK"] {
        let token = format!("[{name}]");
        let found = starts.iter().find(|(start, _)| *start == token);
        let (_, id) = found.ok_or_else(|| format!("the vocabulary has no {token}"))?;
        writeln!(out, "pub const {name}: i64 = {id};")?;
    }
    Ok(out)
}
