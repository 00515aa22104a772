//! `weir new`: a project that builds with plain cargo. The SDK is not on a registry, so it comes along, laid out as
//! in Weir's own repository.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use super::client::Failure;
use super::output;

#[derive(Args)]
pub struct New {
    /// The function's name, and its folder's
    name: String,
}

/// Embeds files: their path in the project, and their path from this file.
macro_rules! files {
    ($($project:literal = $source:literal),* $(,)?) => { [$(($project, include_str!($source))),*] };
}

const TEMPLATES: [(&str, &str); 5] = files![
    ".cargo/config.toml" = "../../../.cargo/config.toml",
    "Cargo.toml" = "../../templates/Cargo.toml.tmpl",
    "src/lib.rs" = "../../templates/src/lib.rs.tmpl",
    ".gitignore" = "../../templates/gitignore.tmpl",
    "README.md" = "../../templates/README.md.tmpl",
];

const SDK: [(&str, &str); 38] = files![
    "weir/sdk/rust/Cargo.toml" = "../../../sdk/rust/Cargo.toml",
    "weir/sdk/rust/src/audio.rs" = "../../../sdk/rust/src/audio.rs",
    "weir/sdk/rust/src/bindings.rs" = "../../../sdk/rust/src/bindings.rs",
    "weir/sdk/rust/src/config.rs" = "../../../sdk/rust/src/config.rs",
    "weir/sdk/rust/src/element.rs" = "../../../sdk/rust/src/element.rs",
    "weir/sdk/rust/src/error.rs" = "../../../sdk/rust/src/error.rs",
    "weir/sdk/rust/src/events.rs" = "../../../sdk/rust/src/events.rs",
    "weir/sdk/rust/src/fetch.rs" = "../../../sdk/rust/src/fetch.rs",
    "weir/sdk/rust/src/host/fake.rs" = "../../../sdk/rust/src/host/fake.rs",
    "weir/sdk/rust/src/host/mod.rs" = "../../../sdk/rust/src/host/mod.rs",
    "weir/sdk/rust/src/host/wasi/http.rs" = "../../../sdk/rust/src/host/wasi/http.rs",
    "weir/sdk/rust/src/host/wasi/mod.rs" = "../../../sdk/rust/src/host/wasi/mod.rs",
    "weir/sdk/rust/src/host/wasi/nn.rs" = "../../../sdk/rust/src/host/wasi/nn.rs",
    "weir/sdk/rust/src/host/wasi/ready.rs" = "../../../sdk/rust/src/host/wasi/ready.rs",
    "weir/sdk/rust/src/image.rs" = "../../../sdk/rust/src/image.rs",
    "weir/sdk/rust/src/lib.rs" = "../../../sdk/rust/src/lib.rs",
    "weir/sdk/rust/src/log.rs" = "../../../sdk/rust/src/log.rs",
    "weir/sdk/rust/src/model.rs" = "../../../sdk/rust/src/model.rs",
    "weir/sdk/rust/src/request.rs" = "../../../sdk/rust/src/request.rs",
    "weir/sdk/rust/src/response.rs" = "../../../sdk/rust/src/response.rs",
    "weir/sdk/rust/src/router.rs" = "../../../sdk/rust/src/router.rs",
    "weir/sdk/rust/src/serve.rs" = "../../../sdk/rust/src/serve.rs",
    "weir/sdk/rust/src/sleep.rs" = "../../../sdk/rust/src/sleep.rs",
    "weir/sdk/rust/src/tensor.rs" = "../../../sdk/rust/src/tensor.rs",
    "weir/sdk/rust/src/testing.rs" = "../../../sdk/rust/src/testing.rs",
    "weir/sdk/rust/src/typed.rs" = "../../../sdk/rust/src/typed.rs",
    "weir/sdk/rust/macros/Cargo.toml" = "../../../sdk/rust/macros/Cargo.toml",
    "weir/sdk/rust/macros/src/lib.rs" = "../../../sdk/rust/macros/src/lib.rs",
    "weir/wit/README.md" = "../../../wit/README.md",
    "weir/wit/world.wit" = "../../../wit/world.wit",
    "weir/wit/deps/cli.wit" = "../../../wit/deps/cli.wit",
    "weir/wit/deps/clocks.wit" = "../../../wit/deps/clocks.wit",
    "weir/wit/deps/filesystem.wit" = "../../../wit/deps/filesystem.wit",
    "weir/wit/deps/http.wit" = "../../../wit/deps/http.wit",
    "weir/wit/deps/io.wit" = "../../../wit/deps/io.wit",
    "weir/wit/deps/nn.wit" = "../../../wit/deps/nn.wit",
    "weir/wit/deps/random.wit" = "../../../wit/deps/random.wit",
    "weir/wit/deps/sockets.wit" = "../../../wit/deps/sockets.wit",
];

/// The packages that come along: cargo does not take another one of such a name beside them.
const TAKEN: [&str; 2] = ["weir-sdk", "weir-sdk-macros"];

impl New {
    pub fn run(self) -> Result<(), Failure> {
        let folder = PathBuf::from(&self.name);
        weir::check_function_name(&self.name).map_err(Failure::Usage)?;
        if !self.name.starts_with(|first: char| first.is_ascii_lowercase()) {
            return Err(Failure::Usage(format!(
                "`{}` cannot be a crate's name: begin with a letter",
                self.name
            )));
        }
        if TAKEN.contains(&&*self.name) {
            return Err(Failure::Usage(format!(
                "`{}` is the name of a crate that comes along with the project: take another",
                self.name
            )));
        }
        // `create_dir` and not `create_dir_all`: what is there already is not ours to write into.
        fs::create_dir(&folder).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Failure::Usage(format!("there is a `{}` here already", self.name))
            }
            _ => Failure::Local(format!("the folder `{}` cannot be made: {error}", self.name)),
        })?;
        let module = self.name.replace('-', "_");
        for (path, text) in TEMPLATES {
            write(&folder, path, &text.replace("{{name}}", &self.name).replace("{{module}}", &module))?;
        }
        for (path, text) in SDK {
            write(&folder, path, text)?;
        }
        output::line(format!("{0} is a new function in the folder {0}; next:", self.name));
        output::line(format!("  cd {}", self.name));
        output::line("  cargo build --release --target wasm32-wasip2");
        output::line(format!("  weir deploy {} target/wasm32-wasip2/release/{module}.wasm", self.name));
        Ok(())
    }
}

fn write(folder: &Path, path: &str, text: &str) -> Result<(), Failure> {
    let path = folder.join(path);
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
    written.map_err(|error| Failure::Local(format!("{} cannot be written: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is added to the SDK and not to the list above would be missing from every new project.
    #[test]
    fn the_whole_sdk_comes_along() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = Vec::new();
        for folder in [
            "sdk/rust/src",
            "sdk/rust/src/host",
            "sdk/rust/src/host/wasi",
            "sdk/rust/macros/src",
            "wit",
            "wit/deps",
        ] {
            for file in fs::read_dir(root.join(folder)).unwrap() {
                let file = file.unwrap();
                if file.file_type().unwrap().is_file() {
                    found.push(format!("weir/{folder}/{}", file.file_name().to_str().unwrap()));
                }
            }
        }
        for path in found {
            assert!(
                SDK.iter().any(|(listed, _)| **listed == path),
                "{path} is not in the list of embedded files"
            );
        }
    }
}
