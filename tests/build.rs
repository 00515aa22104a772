//! Builds the guests of the tests, and the examples, for `wasm32-wasip2`, and writes a constant for each, so that a
//! test that names a guest that is not there does not compile, and a guest that no test names is a warning. Of the
//! hostile corpus it writes an enum with a variant for each file, so that a behaviour without an expectation does not
//! compile either.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).parent().unwrap().to_owned();
    let mut constants = String::new();
    for workspace in ["tests/guests", "examples"] {
        let folder = root.join(workspace);
        build(&folder);
        let built = folder.join("target/wasm32-wasip2/release");
        for member in members(&folder) {
            let module = member.replace('-', "_");
            let component = built.join(format!("{module}.wasm"));
            assert!(component.exists(), "{} was not built", component.display());
            let name = module.to_uppercase();
            constants += &format!("pub const {name}: &str = {:?};\n", component.to_str().unwrap());
        }
        for file in ["Cargo.toml", "Cargo.lock"] {
            println!("cargo::rerun-if-changed={}", folder.join(file).display());
        }
    }
    for watched in [".cargo", "tests/guests", "examples", "sdk/rust", "wit", "models/magika", "models/minilm"]
    {
        watch(&root.join(watched));
    }
    constants += &behaviours(&root.join("tests/guests"));
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap()).join("guests.rs");
    fs::write(out, constants).unwrap();
}

/// The corpus as an enum: a variant for each file, with its name and its component.
fn behaviours(guests: &Path) -> String {
    let mut all: Vec<(String, String)> = vec![];
    for (folder, component) in [
        ("hostile/src/behaviours", Some("HOSTILE")),
        ("hostile-p3/src/behaviours", Some("HOSTILE_P3")),
        ("wat", None),
    ] {
        // The folder itself, so that a new file is seen.
        println!("cargo::rerun-if-changed={}", guests.join(folder).display());
        for file in fs::read_dir(guests.join(folder)).unwrap().flatten() {
            let path = file.path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            all.push((
                name,
                match component {
                    Some(constant) => format!("Component::File({constant})"),
                    None => format!("Component::Text(include_str!({path:?}))"),
                },
            ));
        }
    }
    all.sort();
    if let Some(pair) = all.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        panic!("two files of the corpus are called {}", pair[0].0);
    }
    let list = |line: &dyn Fn(&str, &str, &str) -> String| -> String {
        all.iter().map(|(name, component)| line(&camel(name), name, component)).collect()
    };
    format!(
        "/// What a hostile guest does: one for each file of the corpus.\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]\n\
         pub enum Behaviour {{\n{}}}\n\n\
         impl Behaviour {{\n\
         pub const ALL: [Self; {}] = [\n{}];\n\n\
         /// The name of its file, which is its path too.\n\
         pub fn name(self) -> &'static str {{\nmatch self {{\n{}}}\n}}\n\n\
         pub fn component(self) -> Component {{\nmatch self {{\n{}}}\n}}\n}}\n",
        list(&|variant, _, _| format!("{variant},\n")),
        all.len(),
        list(&|variant, _, _| format!("Self::{variant},\n")),
        list(&|variant, name, _| format!("Self::{variant} => {name:?},\n")),
        list(&|variant, _, component| format!("Self::{variant} => {component},\n")),
    )
}

fn camel(name: &str) -> String {
    name.split('_')
        .map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_uppercase() + rest
        })
        .collect()
}

/// Cargo watches folders whole; target folders inside them change with every build.
fn watch(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if name == "target" || name == "samples" {
            continue;
        }
        if path.is_dir() { watch(&path) } else { println!("cargo::rerun-if-changed={}", path.display()) }
    }
}

fn build(folder: &Path) {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap());
    cargo.args(["build", "--release", "--locked", "--target", "wasm32-wasip2"]).current_dir(folder);
    // What cargo tells this script about its own build is not about the guests.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let ours =
            name.starts_with("CARGO_") && !["CARGO_HOME", "CARGO_NET_OFFLINE"].contains(&name.as_str());
        if ours || name == "RUSTFLAGS" || name == "RUSTC_WORKSPACE_WRAPPER" || name == "RUSTC_WRAPPER" {
            cargo.env_remove(name);
        }
    }
    let status = cargo.status().expect("cargo can be run");
    assert!(
        status.success(),
        "the guests in {} do not build; if the target is missing: rustup target add wasm32-wasip2",
        folder.display()
    );
}

/// The members of a workspace: its folders with a Cargo.toml.
fn members(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut members: Vec<String> = entries
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    members.sort();
    members
}
