//! The binary `weir`, as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A server process.
pub struct Process {
    pub url: String,
    child: Child,
}

impl Process {
    /// Starts `weir serve` on a data directory, and waits until it listens.
    pub async fn serve(data: &Path) -> Self {
        let mut child = Command::new(Self::binary())
            .args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = loop {
            let line = lines.next_line().await.unwrap().expect("the server says where it listens");
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.split_whitespace().next().unwrap().to_owned();
            }
        };
        // A full pipe would stop the server.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { url, child }
    }

    /// Kills it with SIGKILL.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Runs a client command against this server.
    pub async fn command(&self, arguments: &[&str]) -> Output {
        Self::run(arguments, &self.url, Path::new(".")).await
    }

    /// Runs a client command in a folder.
    pub async fn run(arguments: &[&str], url: &str, folder: &Path) -> Output {
        let mut command = Command::new(Self::binary());
        command.args(arguments).env("WEIR_URL", url).current_dir(folder).output().await.unwrap()
    }

    /// The binary beside this test's own.
    pub fn binary() -> PathBuf {
        let test = std::env::current_exe().unwrap();
        let binary = test.parent().and_then(Path::parent).unwrap().join("weir");
        assert!(binary.exists(), "{} is not there; run `cargo build --release` first", binary.display());
        binary
    }
}
