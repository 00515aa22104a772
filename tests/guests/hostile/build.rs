//! Lists the files of `src/behaviours` and writes the way from a path to each.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("src/behaviours");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let (mut modules, mut arms) = (String::new(), String::new());
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        modules += &format!("#[path = {file:?}]\nmod {name};\n");
        arms += &format!("        \"{name}\" => {name}::run,\n");
    }
    let written = format!(
        "{modules}\nfn behaviour(name: &str) -> Option<Run> {{\n    Some(match name {{\n{arms}        _ => return None,\n    }})\n}}\n"
    );
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap()).join("behaviours.rs"), written).unwrap();
}
