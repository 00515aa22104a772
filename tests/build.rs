//! Builds the guests of the tests, and the examples, for `wasm32-wasip2`, and writes a constant for each, so that a
//! test that names a guest that is not there does not compile, and a guest that no test names is a warning.

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
    for watched in [".cargo", "tests/guests", "examples", "sdk/rust", "wit", "models/magika"] {
        watch(&root.join(watched));
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap()).join("guests.rs");
    fs::write(out, constants).unwrap();
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
