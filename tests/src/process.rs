//! The binary `weir`, as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A server process.
pub struct Process {
    pub url: String,
    child: Child,
    /// What it has said on stderr since it listens.
    said: Arc<Mutex<String>>,
}

impl Process {
    /// Starts `weir serve` on a data directory, and waits until it listens.
    pub async fn serve(data: &Path) -> Self {
        Self::start(Self::server(data)).await
    }

    /// The same, with settings (TOML) that are kept beside what is in the data directory.
    pub async fn serve_with(data: &Path, settings: &str) -> Self {
        let file = data.join("weir.toml");
        std::fs::write(&file, settings).unwrap();
        let mut command = Self::server(data);
        command.arg("--config").arg(file);
        Self::start(command).await
    }

    /// One that asks for keys, over TLS, with a certificate of its own: `cert.pem` in the data directory.
    pub async fn serve_with_keys(data: &Path) -> Self {
        Self::serve_with_keys_and(data, "").await
    }

    /// The same, with settings (TOML).
    pub async fn serve_with_keys_and(data: &Path, settings: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let (cert, key) = (data.join("cert.pem"), data.join("key.pem"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let mut command = Command::new(Self::binary("weir"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
        let file = data.join("weir.toml");
        std::fs::write(&file, settings).unwrap();
        command.arg("--tls-cert").arg(cert).arg("--tls-key").arg(key).arg("--config").arg(file);
        Self::start(command).await
    }

    fn server(data: &Path) -> Command {
        Self::server_of(&Self::binary("weir"), data)
    }

    /// `weir serve` of a binary that may lie elsewhere, to be changed before it is started.
    pub fn server_of(binary: &Path, data: &Path) -> Command {
        let mut command = Command::new(binary);
        command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
        command
    }

    /// One whose files may be limited while it runs: without this the system would end it at the limit. Source:
    /// setrlimit(2), RLIMIT_FSIZE.
    pub async fn serve_limited(data: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(Self::binary("weir"));
        command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
        Self::start(command).await
    }

    /// How large the files may be from now on that it writes.
    pub async fn limit_files(&self, most: &str) {
        let mut command = Command::new("prlimit");
        command.arg("--pid").arg(self.child.id().unwrap().to_string()).arg(format!("--fsize={most}:"));
        assert!(command.status().await.unwrap().success());
    }

    /// A client command against this server, to be changed before it is run.
    pub fn command_line(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(Self::binary("weir"));
        command.args(arguments).env("WEIR_URL", &self.url);
        command
    }

    /// Starts any server that says on stderr where it listens, and waits until it does.
    pub async fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = loop {
            let line = lines.next_line().await.unwrap().expect("the server says where it listens");
            if let Some(start) = line.find("http://").or_else(|| line.find("https://")) {
                let url = line[start..].split([' ', '"']).next().unwrap();
                break url.trim_end_matches('/').to_owned();
            }
        };
        // A full pipe would stop the server.
        let said = Arc::<Mutex<String>>::default();
        let says = Arc::clone(&said);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                says.lock().unwrap().extend([&line, "\n"]);
            }
        });
        Self { url, child, said }
    }

    /// Its resident memory, in bytes.
    pub fn memory(&self) -> u64 {
        let kib = self.status("VmRSS:");
        kib.strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
    }

    /// Its threads.
    pub fn threads(&self) -> usize {
        self.status("Threads:").parse().unwrap()
    }

    /// Its open files, sockets included.
    pub fn files(&self) -> usize {
        std::fs::read_dir(self.folder().join("fd")).unwrap().count()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// A line of what the system says of it. Source: proc_pid_status(5).
    fn status(&self, field: &str) -> String {
        let status = std::fs::read_to_string(self.folder().join("status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().to_owned()
    }

    fn folder(&self) -> PathBuf {
        Path::new("/proc").join(self.child.id().unwrap().to_string())
    }

    /// Waits until it has said this in its log, so many times in all.
    pub async fn says(&self, text: &str, times: usize) {
        let said = async || self.said.lock().unwrap().matches(text).count() >= times;
        crate::until(&format!("the log says {text:?}"), said).await;
    }

    /// Sends it a signal: `TERM`, `HUP`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().unwrap().to_string();
        let sent = std::process::Command::new("kill").arg(format!("-{name}")).arg(pid).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until it has ended on its own, and gives its exit code.
    pub async fn ends(mut self) -> Option<i32> {
        self.child.wait().await.unwrap().code()
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
        let mut command = Command::new(Self::binary("weir"));
        command.args(arguments).env("WEIR_URL", url).current_dir(folder).output().await.unwrap()
    }

    /// A binary of this workspace, beside the one that runs.
    pub fn binary(name: &str) -> PathBuf {
        let me = std::env::current_exe().unwrap();
        let binary =
            me.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.exists());
        binary
            .unwrap_or_else(|| panic!("`{name}` is not built; run `cargo build --release --workspace` first"))
    }
}
