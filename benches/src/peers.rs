//! The servers that are measured: Weir's binary, a bare handler, and the bare engine's own server if it is installed.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use weir_tests::{Process, guests};

use crate::load::{self, Connection};

/// A Weir of its own, with its data directory.
pub struct Weir {
    pub process: Process,
    pub control: Connection,
    _data: TempDir,
}

impl Weir {
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with("").await
    }

    /// The same with settings (TOML).
    pub async fn start_with(settings: &str) -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        let process = Process::serve_with(data.path(), settings).await;
        let control = Connection::open(&process.url).await?;
        Ok(Self { process, control, _data: data })
    }

    /// Deploys a component from its file.
    pub async fn deploy(&mut self, name: &str, component: &str, config: Value) -> anyhow::Result<()> {
        let component = std::fs::read(component)?;
        let mut body = b"--part\r\ncontent-disposition: form-data; name=\"config\"\r\n\r\n".to_vec();
        body.extend_from_slice(config.to_string().as_bytes());
        body.extend_from_slice(
            b"\r\n--part\r\ncontent-disposition: form-data; name=\"component\"; filename=\"f\"\r\n\r\n",
        );
        body.extend_from_slice(&component);
        body.extend_from_slice(b"\r\n--part--\r\n");
        let path = format!("/v1/functions/{name}/revisions");
        let request = load::request("POST", &path, "multipart/form-data; boundary=part", &body);
        self.control.expect(&request).await.with_context(|| format!("deploying {name}"))?;
        Ok(())
    }

    pub async fn put_model(&mut self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let path = format!("/v1/models/{name}?format=onnx");
        let request = load::request("PUT", &path, "application/octet-stream", bytes);
        self.control.expect(&request).await.with_context(|| format!("uploading {name}"))?;
        Ok(())
    }

    pub async fn status(&mut self, name: &str) -> anyhow::Result<Value> {
        let reply = self.control.expect(&load::get(&format!("/v1/functions/{name}"))).await?;
        Ok(serde_json::from_slice(&reply.body)?)
    }
}

/// The hello function, as the bench of it and the others deploy it.
pub async fn deploy_hello(weir: &mut Weir, name: &str) -> anyhow::Result<()> {
    weir.deploy(name, guests::HELLO, json!({})).await
}

pub fn hello(name: &str) -> Vec<u8> {
    load::get(&format!("/fn/default/{name}/"))
}

pub async fn axum() -> Process {
    Process::start(Command::new(Process::binary("axum-hello"))).await
}

/// The engine's command-line tool.
pub struct Wasmtime(PathBuf);

impl Wasmtime {
    /// From the variable `WASMTIME`, or from the path. Says so if there is none.
    pub async fn find() -> Option<Self> {
        let program = std::env::var_os("WASMTIME").map_or_else(|| "wasmtime".into(), PathBuf::from);
        match Command::new(&program).arg("--version").output().await {
            Ok(version) if version.status.success() => {
                eprint!("twin: {}", String::from_utf8_lossy(&version.stdout));
                Some(Self(program))
            }
            _ => {
                eprintln!(
                    "`wasmtime` is not installed: its rows are left out (docs/benches.md tells how to have it)"
                );
                None
            }
        }
    }

    /// `wasmtime serve` on a component.
    pub async fn serve(&self, flags: &[&str], component: &Path) -> Process {
        let mut command = Command::new(&self.0);
        command.args(["serve", "-Scli", "--addr", "127.0.0.1:0"]).args(flags).arg(component);
        Process::start(quiet(command)).await
    }

    /// Compiles a component ahead of time.
    pub async fn compile(&self, component: &str, into: &Path) -> anyhow::Result<()> {
        let status = Command::new(&self.0).args(["compile", component, "-o"]).arg(into).status().await?;
        anyhow::ensure!(status.success(), "`wasmtime compile` failed");
        Ok(())
    }
}

fn quiet(mut command: Command) -> Command {
    command.stdout(Stdio::null());
    command
}
