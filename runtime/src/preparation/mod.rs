//! Untrusted uploads are opened in a process of their own, which may die.
//!
//! The server runs itself again, as `weir prepare`, with nothing but the upload on its stdin and a pipe on its stdout:
//! no environment, no other descriptors, and limits on its address space, CPU time and files. What comes out whole, a
//! compiled component or a model's report, is used; what kills the process, or takes too much of it, is the uploader's
//! to hear about, and nothing else notices.
//!
//! ```text
//! mod.rs     this side: starts the process, reads what it says, and what its death means
//! child.rs   the other side
//! ```

mod child;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::Semaphore;
use weir_gpu::{Examiner, Format, ModelBytes, ModelLimits, ModelSource, Report};

pub use child::main;

use crate::config::Settings;
use crate::limits::{Exceeded, Limit};
use crate::telemetry::Telemetry;
use crate::units::Size;

/// What the process is to do, given as its one argument.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    work: Work,
    /// Bytes of address space.
    memory: u64,
    /// Seconds of CPU, of all threads together.
    seconds: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Work {
    Component { stack: Size },
    Model { format: Format, shapes: Option<Vec<Vec<usize>>>, limits: ModelLimits },
}

/// What the process says, as a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    /// So many bytes of an artifact follow.
    Compiled(u64),
    /// What is wrong with the component.
    Rejected(String),
    Examined(Report),
    Refused(weir_gpu::Error),
    /// The compiler panicked, with these words.
    Panicked(String),
}

/// Why an upload was not prepared.
#[derive(Debug, thiserror::Error)]
pub enum Unprepared {
    #[error("{0}")]
    Component(String),
    #[error(transparent)]
    Model(weir_gpu::Error),
    #[error(transparent)]
    Exceeded(Exceeded),
    #[error("the process that prepared it {0}")]
    Died(String),
    #[error(transparent)]
    Host(#[from] io::Error),
}

/// Starts the processes.
pub struct Preparer {
    binary: PathBuf,
    stack: Size,
    model: ModelLimits,
    time: Duration,
    memory: Size,
    telemetry: Arc<Telemetry>,
    /// How many uploads may be prepared at one time.
    uploads: Semaphore,
    /// The same for what calls need, so that uploads do not hold them up.
    calls: Semaphore,
}

/// Who waits for a preparation.
#[derive(Debug, Clone, Copy)]
pub enum For {
    Upload,
    Call,
}

/// The longest line that the process may say, and the most of its last words that are read.
const LINE_BYTES: u64 = 4 << 20;
const LAST_WORDS: u64 = 8 << 10;

impl Preparer {
    pub fn new(binary: PathBuf, settings: &Settings, telemetry: Arc<Telemetry>) -> Self {
        let config = &settings.preparation;
        Self {
            binary,
            stack: settings.sandbox.stack,
            model: ModelLimits {
                memory: settings.limits.model_memory.as_u64(),
                operator_cost: settings.limits.operator_cost,
            },
            time: config.time,
            memory: config.memory,
            telemetry,
            uploads: Semaphore::new(config.at_once.get()),
            calls: Semaphore::new(config.at_once.get()),
        }
    }

    pub fn model_limits(&self) -> ModelLimits {
        self.model
    }

    /// Compiles a component and writes the artifact to `into`.
    ///
    /// # Errors
    /// What is wrong with the component, or what became of the process.
    pub async fn compile(
        &self,
        waits: For,
        component: File,
        into: &mut (impl Write + Send),
    ) -> Result<(), Unprepared> {
        match self.run(waits, Work::Component { stack: self.stack }, Input::File(component), into).await? {
            Said::Compiled(_) => Ok(()),
            // Its words may be the component's own; these are the system's.
            Said::Rejected(reason) if reason.contains("os error 12") => Err(self.starved()),
            Said::Rejected(reason) => Err(Unprepared::Component(reason)),
            Said::Panicked(reason) => Err(self.judge(reason, |_| {
                Unprepared::Component("the component is not valid: the compiler failed on it".to_owned())
            })),
            other => Err(Unprepared::Died(format!("said {other:?}"))),
        }
    }

    /// Examines a model: parses, refuses, optimises, plans and dry-runs it.
    ///
    /// # Errors
    /// What is wrong with the model, or what became of the process.
    pub async fn examine(
        &self,
        waits: For,
        format: Format,
        bytes: &ModelBytes,
        shapes: Option<Vec<Vec<usize>>>,
    ) -> Result<Report, Unprepared> {
        let input = match bytes {
            ModelBytes::File(path) => Input::File(File::open(path)?),
            ModelBytes::Memory(bytes) => Input::Memory(bytes.clone()),
        };
        let work = Work::Model { format, shapes, limits: self.model };
        match self.run(waits, work, input, &mut io::sink()).await? {
            Said::Examined(report) => Ok(report),
            // The engine's own panics come as errors.
            Said::Refused(weir_gpu::Error::EnginePanic(reason)) => {
                Err(self.judge(reason, |reason| Unprepared::Model(weir_gpu::Error::EnginePanic(reason))))
            }
            Said::Refused(error) => {
                let limit = match &error {
                    weir_gpu::Error::ModelMemory { .. } => Some(Limit::ModelMemory),
                    weir_gpu::Error::OperatorCost { .. } => Some(Limit::OperatorCost),
                    _ => None,
                };
                if let Some(limit) = limit {
                    self.telemetry.limit(limit);
                    tracing::info!(%error, "a model was refused");
                }
                Err(Unprepared::Model(error))
            }
            other => Err(Unprepared::Died(format!("said {other:?}"))),
        }
    }

    /// A failure's own words may say that memory was not to be had.
    fn judge(&self, reason: String, otherwise: impl FnOnce(String) -> Unprepared) -> Unprepared {
        let starved =
            ["memory allocation of", "failed to allocate", "annot allocate memory", "out of memory"];
        if starved.iter().any(|words| reason.contains(words)) { self.starved() } else { otherwise(reason) }
    }

    fn starved(&self) -> Unprepared {
        self.exceeded(
            Limit::PreparationMemory,
            format!("preparing it takes more than {}, the most here", self.memory),
        )
    }

    fn late(&self) -> Unprepared {
        let most = humantime::format_duration(self.time);
        self.exceeded(Limit::PreparationTime, format!("preparing it takes longer than {most}, the most here"))
    }

    fn exceeded(&self, limit: Limit, detail: String) -> Unprepared {
        self.telemetry.limit(limit);
        tracing::info!(detail, "an upload was refused");
        Unprepared::Exceeded(Exceeded::new(limit, detail))
    }

    async fn run(
        &self,
        waits: For,
        work: Work,
        input: Input,
        into: &mut (impl Write + Send),
    ) -> Result<Said, Unprepared> {
        let turns = match waits {
            For::Upload => &self.uploads,
            For::Call => &self.calls,
        };
        let _turn = turns.acquire().await.map_err(io::Error::other)?;
        // Whole seconds, and one more than the clock's, so that the clock is who ends what only waits.
        let seconds = self.time.as_secs().saturating_add(1).saturating_mul(threads());
        let order = Order { work, memory: self.memory.as_u64(), seconds };
        match tokio::time::timeout(self.time, self.start(&order, input, into)).await {
            Ok(said) => said,
            // Dropping the process has killed it.
            Err(_) => Err(self.late()),
        }
    }

    async fn start(
        &self,
        order: &Order,
        input: Input,
        into: &mut (impl Write + Send),
    ) -> Result<Said, Unprepared> {
        let order = serde_json::to_string(order).map_err(io::Error::other)?;
        let (stdin, bytes) = match input {
            Input::File(file) => (Stdio::from(file), None),
            Input::Memory(bytes) => (Stdio::piped(), Some(bytes)),
        };
        let mut child = Command::new(&self.binary)
            .arg0("weir")
            .args(["prepare", &order])
            .env_clear()
            .current_dir("/")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return Err(io::Error::other("the process has no pipes").into());
        };
        let feed = async {
            if let (Some(mut stdin), Some(bytes)) = (stdin, bytes) {
                // A process that has died does not read; how it died says more.
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stdin, &bytes).await;
            }
        };
        let ((), said, last_words) = tokio::join!(feed, hear(stdout, into), words(stderr));
        let status = child.wait().await?;
        match said? {
            Some(said) if status.success() => Ok(said),
            _ => Err(self.death(status, last_words)),
        }
    }

    /// What a process's death means to the uploader.
    fn death(&self, status: ExitStatus, last_words: String) -> Unprepared {
        tracing::warn!(%status, last_words, "a process that prepared an upload died");
        /// Source: signal(7).
        const SIGKILL: i32 = 9;
        const SIGXCPU: i32 = 24;
        let reason = match status.signal() {
            Some(SIGXCPU) => return self.late(),
            // Nobody here kills it but by dropping it: the system did, which had no memory left.
            Some(SIGKILL) => return self.starved(),
            Some(signal) => format!("died of signal {signal}"),
            None => "ended early".to_owned(),
        };
        self.judge(last_words, |_| Unprepared::Died(reason))
    }
}

/// Threads that may compute at one time: all of them count as CPU time.
fn threads() -> u64 {
    std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64)
}

/// Where an upload's bytes are.
enum Input {
    File(File),
    Memory(Bytes),
}

/// What the process says, and the bytes that follow; `None` if it did not come to the end.
async fn hear(stdout: impl AsyncRead + Unpin, into: &mut impl Write) -> io::Result<Option<Said>> {
    let mut stdout = BufReader::with_capacity(256 << 10, stdout);
    let mut line = Vec::new();
    (&mut stdout).take(LINE_BYTES).read_until(b'\n', &mut line).await?;
    let Ok(said) = serde_json::from_slice(&line) else { return Ok(None) };
    if let Said::Compiled(mut left) = said {
        while left > 0 {
            let piece = stdout.fill_buf().await?;
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            let Some(piece) = piece.get(..length).filter(|piece| !piece.is_empty()) else { return Ok(None) };
            tokio::task::block_in_place(|| into.write_all(piece))?;
            stdout.consume(length);
            left = left.saturating_sub(length as u64);
        }
    }
    Ok(Some(said))
}

/// The last thing that a process says before it dies. What is beyond the most of it is read and forgotten.
async fn words(mut stderr: impl AsyncRead + Unpin) -> String {
    let mut words = Vec::new();
    let _ = (&mut stderr).take(LAST_WORDS).read_to_end(&mut words).await;
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&words).trim().to_owned()
}

/// For models that calls bring or ask for in new shapes.
pub struct ForCalls(pub Arc<Preparer>);

impl Examiner for ForCalls {
    fn examine(
        &self,
        model: &ModelSource,
        shapes: Option<Vec<Vec<usize>>>,
    ) -> BoxFuture<'static, Result<Report, weir_gpu::Error>> {
        let (preparer, format, bytes) = (Arc::clone(&self.0), model.format, model.bytes.clone());
        async move {
            preparer.examine(For::Call, format, &bytes, shapes).await.map_err(|unprepared| match unprepared {
                Unprepared::Model(error) => error,
                Unprepared::Host(error) => {
                    tracing::error!(%error, "a model cannot be examined");
                    weir_gpu::Error::Died("the server could not".to_owned())
                }
                other => weir_gpu::Error::Died(other.to_string()),
            })
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A preparer whose process is a shell script.
    fn script(folder: &tempfile::TempDir, text: &str, time: Duration) -> Preparer {
        let path = folder.path().join("weir");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        let mut settings = Settings::default();
        settings.preparation.time = time;
        Preparer::new(path, &settings, Arc::default())
    }

    const LONG: Duration = Duration::from_secs(60);

    async fn compile(preparer: &Preparer) -> Result<Vec<u8>, Unprepared> {
        let (mut into, file) = (Vec::new(), tempfile::tempfile().unwrap());
        preparer.compile(For::Upload, file, &mut into).await.map(|()| into)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_the_process_says_is_heard_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let said = |text: &str| script(&folder, text, LONG);
        let whole = compile(&said(r#"echo '{"Compiled":4}'; printf abcd"#)).await;
        assert_eq!(whole.unwrap(), b"abcd");
        for half in [
            r#"echo '{"Compiled":4}'; printf abc"#,
            r#"echo '{"Compiled":4}'; printf abcd; exit 1"#,
            "echo nonsense",
            "exit 0",
        ] {
            assert!(matches!(compile(&said(half)).await, Err(Unprepared::Died(_))), "{half}");
        }
        let rejected = compile(&said(r#"echo '{"Rejected":"no"}'"#)).await.unwrap_err();
        assert_eq!(rejected.to_string(), "no");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_death_says_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let said = |text: &str| script(&folder, text, LONG);
        let limit = |unprepared: Unprepared| match unprepared {
            Unprepared::Exceeded(exceeded) => exceeded.limit,
            other => panic!("{other}"),
        };
        let starved = compile(&said("echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$")).await;
        assert_eq!(limit(starved.unwrap_err()), Limit::PreparationMemory);
        let late = compile(&said("kill -XCPU $$")).await;
        assert_eq!(limit(late.unwrap_err()), Limit::PreparationTime);
        let died = compile(&said("kill -SEGV $$")).await.unwrap_err();
        assert_eq!(died.to_string(), "the process that prepared it died of signal 11");
        let waits = script(&folder, "exec sleep 600", Duration::from_millis(50));
        assert_eq!(limit(compile(&waits).await.unwrap_err()), Limit::PreparationTime);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_process_has_no_environment() {
        let folder = tempfile::tempdir().unwrap();
        let shown = r#"
            names=$(tr '\0' '\n' < /proc/$$/environ | grep -v '^\(PWD\|SHLVL\|_\)=' | tr '\n' ' ')
            echo "{\"Rejected\":\"names $names in $(pwd)\"}""#;
        let rejected = compile(&script(&folder, shown, LONG)).await.unwrap_err().to_string();
        assert_eq!(rejected, "names  in /");
    }
}
