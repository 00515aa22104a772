//! Where a guest's stdout and stderr go: to its function's log, line by line.
//!
//! A log is a file in the data directory, so that an idle function holds no memory and a restart loses nothing. It
//! is capped: when a file is full it becomes the old one, the old one before it is forgotten. A guest that logs more in
//! a line, a call or a second than it may loses the rest, and a line says so. Followers get lines as they come; one that
//! is too slow misses some and is told how many.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWrite;
use tokio::sync::broadcast;
use tokio::time::Instant;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::config::LogConfig;
use crate::function::Limits;
use crate::limits::Limit;
use crate::log::Shipper;
use crate::store;
use crate::telemetry::Telemetry;
use crate::trace::Recording;
use crate::units::Size;

/// Who wrote a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Stdout,
    Stderr,
    /// Weir itself, about the function: a trap, a limit.
    Weir,
}

impl Source {
    /// As lines show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Weir => "weir",
        }
    }
}

/// One line of a function's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// RFC 3339, UTC, with milliseconds.
    pub time: String,
    pub source: Source,
    pub revision: u64,
    /// The call's number since the server's start.
    pub call: u64,
    pub text: String,
}

/// The log of one function.
pub struct Log {
    path: PathBuf,
    config: LogConfig,
    /// Takes the lines elsewhere, too.
    shipper: Option<Shipper>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<File>,
    written: u64,
    followers: Option<broadcast::Sender<Line>>,
    rate: Rate,
    /// Nothing is written any more: the function is gone, though calls of it may still run.
    removed: bool,
}

/// What may be written now: a second's worth at most, which comes back as time passes.
#[derive(Default)]
struct Rate {
    used: u64,
    seen: Option<Instant>,
}

impl Rate {
    /// How many bytes may be written now, at `per_second`.
    fn left(&mut self, now: Instant, per_second: u64) -> u64 {
        let passed = self.seen.map_or(u128::MAX, |seen| now.saturating_duration_since(seen).as_nanos());
        let back = u128::from(per_second).saturating_mul(passed) / 1_000_000_000;
        // Time too short to give a byte back stays uncounted.
        if back > 0 {
            self.used = self.used.saturating_sub(u64::try_from(back).unwrap_or(u64::MAX));
            self.seen = Some(now);
        }
        per_second.saturating_sub(self.used)
    }

    fn spend(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }
}

/// What a line costs beside its text, of all that a guest may log: what is kept with it.
const LINE: u64 = 64;

fn line(source: Source, revision: u64, call: u64, text: String) -> Line {
    let time = humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string();
    Line { time, source, revision, call, text }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// The log at `path`. No file is made before the first line.
    pub fn new(path: PathBuf, config: LogConfig, shipper: Option<Shipper>) -> Self {
        Self { path, config, shipper, state: Mutex::default() }
    }

    fn old(&self) -> PathBuf {
        self.path.with_extension("old.jsonl")
    }

    fn append(&self, lines: Vec<Line>, trace: Option<&Recording>) {
        for line in &lines {
            if let Some(trace) = trace {
                trace.line(line.source.name(), &line.text);
            }
            if let Some(shipper) = &self.shipper {
                shipper.ship(line, trace.map(|trace| trace.context.link()));
            }
        }
        let mut state = lock(&self.state);
        if state.removed || lines.is_empty() {
            return;
        }
        if let Err(error) = self.write(&mut state, &lines) {
            tracing::warn!(%error, "a log line cannot be written");
            state.file = None;
        }
        // With nobody listening any more the channel goes, so that an idle function holds none.
        for line in lines {
            if state.followers.as_ref().is_some_and(|followers| followers.send(line).is_err()) {
                state.followers = None;
            }
        }
    }

    /// Writes lines at once, for there may be many.
    fn write(&self, state: &mut State, lines: &[Line]) -> io::Result<()> {
        let mut json = Vec::new();
        for line in lines {
            let before = json.len();
            serde_json::to_writer(&mut json, line)?;
            json.push(b'\n');
            let held = state.file.is_some() || before > 0;
            if held && state.written + json.len() as u64 > self.config.file_bytes.as_u64() {
                let last = json.split_off(before);
                self.put(state, &json)?;
                json = last;
                state.file = None;
                fs::rename(&self.path, self.old())?;
            }
            if state.file.is_none() {
                self.open(state)?;
            }
        }
        self.put(state, &json)
    }

    fn open(&self, state: &mut State) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            store::make_folder(folder)?;
        }
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
        state.written = file.metadata()?.len();
        state.file = Some(file);
        Ok(())
    }

    fn put(&self, state: &mut State, json: &[u8]) -> io::Result<()> {
        if let Some(file) = &mut state.file {
            file.write_all(json)?;
            state.written += json.len() as u64;
        }
        Ok(())
    }

    /// Weir's own line about a call that has no sandbox.
    pub fn note(&self, revision: u64, call: u64, text: String) {
        self.append(vec![line(Source::Weir, revision, call, text)], None);
    }

    /// Closes the file, for when the function goes to zero.
    pub fn rest(&self) {
        lock(&self.state).file = None;
    }

    /// The last lines, oldest first.
    pub fn recent(&self, most: usize) -> io::Result<Vec<Line>> {
        let mut lines = VecDeque::new();
        for path in [self.old(), self.path.clone()] {
            read_lines(&path, |line| {
                lines.push_back(line);
                if lines.len() > most {
                    lines.pop_front();
                }
            })?;
        }
        Ok(lines.into())
    }

    /// The last lines, and those that follow on them: none is missed and none comes twice.
    pub fn follow(&self, most: usize) -> io::Result<(Vec<Line>, broadcast::Receiver<Line>)> {
        // Nobody writes in between.
        let mut state = lock(&self.state);
        let recent = self.recent(most)?;
        let new = match &state.followers {
            Some(followers) => followers.subscribe(),
            None => {
                let (sender, receiver) = broadcast::channel(self.config.follow_lines.get());
                state.followers = Some(sender);
                receiver
            }
        };
        Ok((recent, new))
    }

    /// Forgets all lines.
    pub fn remove(&self) {
        let mut state = lock(&self.state);
        *state = State { removed: true, ..State::default() };
        for path in [self.old(), self.path.clone()] {
            if let Err(error) = fs::remove_file(path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(%error, "a log cannot be removed");
            }
        }
    }
}

fn read_lines(path: &Path, mut each: impl FnMut(Line)) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for line in BufReader::new(file).lines() {
        // A line torn by a crash is passed over.
        if let Ok(line) = serde_json::from_str(&line?) {
            each(line);
        }
    }
    Ok(())
}

/// One call's pen for its function's log. Cloning it shares the caps.
#[derive(Clone)]
pub struct CallLog {
    log: Arc<Log>,
    revision: u64,
    call_bytes: Size,
    per_second: Size,
    telemetry: Arc<Telemetry>,
    state: Arc<Mutex<CallState>>,
}

struct CallState {
    call: u64,
    trace: Option<Recording>,
    left: u64,
    /// Which of the two limits on the amount this call has been told of.
    told: [bool; 2],
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl CallLog {
    pub fn new(log: Arc<Log>, revision: u64, limits: &Limits, telemetry: Arc<Telemetry>) -> Self {
        let (call_bytes, per_second) = (limits.log_bytes, limits.log_bytes_per_second);
        let state = CallState {
            call: 0,
            trace: None,
            left: call_bytes.as_u64(),
            told: [false; 2],
            stdout: vec![],
            stderr: vec![],
        };
        Self { log, revision, call_bytes, per_second, telemetry, state: Arc::new(Mutex::new(state)) }
    }

    fn call(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new call begins in this sandbox: its lines carry its number and its caps are whole.
    pub fn begin(&self, number: u64, trace: Option<Recording>) {
        // What the call before left without an end is its own.
        self.finish();
        let mut state = self.call();
        state.call = number;
        state.trace = trace;
        state.left = self.call_bytes.as_u64();
        state.told = [false; 2];
    }

    /// Weir's own line about the call.
    pub fn note(&self, text: String) {
        self.put(Source::Weir, text);
    }

    /// Writes what is left of lines without an end.
    pub fn finish(&self) {
        for source in [Source::Stdout, Source::Stderr] {
            let mut state = self.call();
            let rest = std::mem::take(state.pending(source));
            drop(state);
            if !rest.is_empty() {
                self.put(source, String::from_utf8_lossy(&rest).into_owned());
            }
        }
    }

    fn put(&self, source: Source, text: String) {
        let state = self.call();
        let (call, trace) = (state.call, state.trace.clone());
        drop(state);
        self.log.append(vec![line(source, self.revision, call, text)], trace.as_ref());
    }

    fn write(&self, source: Source, bytes: &[u8]) {
        let longest = usize::try_from(self.log.config.line_bytes.as_u64()).unwrap_or(usize::MAX).max(1);
        let mut lines = Vec::new();
        let mut state = self.call();
        let (call, trace) = (state.call, state.trace.clone());
        let mut whole = |pending: &mut Vec<u8>| {
            let text = String::from_utf8_lossy(&std::mem::take(pending)).into_owned();
            lines.push(line(source, self.revision, call, text));
        };
        let in_second = lock(&self.log.state).rate.left(Instant::now(), self.per_second.as_u64());
        let (in_call, mut spent) = (state.left, 0_u64);
        let left = in_call.min(in_second);
        let mut cut = false;
        let pending = state.pending(source);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = match piece {
                [text @ .., b'\n'] => (text, true),
                text => (text, false),
            };
            let cost = |text: &[u8]| text.len() as u64 + if ended { 1 + LINE } else { 0 };
            let room = left.saturating_sub(spent);
            cut = cost(text) > room;
            let kept =
                if cut { text.get(..usize::try_from(room).unwrap_or(0)).unwrap_or(text) } else { text };
            spent = spent.saturating_add(cost(kept)).min(left);
            for part in kept.chunks(longest) {
                if pending.len() + part.len() > longest {
                    whole(pending);
                    spent = spent.saturating_add(LINE);
                }
                pending.extend_from_slice(part);
            }
            if cut {
                break;
            }
            if ended {
                whole(pending);
            }
        }
        state.left = state.left.saturating_sub(spent);
        // Which of the two it was, and whether it is news.
        let mut news = [cut && in_call <= in_second, cut && in_second < in_call];
        for (told, news) in state.told.iter_mut().zip(&mut news) {
            *news = *news && !std::mem::replace(told, *told || *news);
        }
        drop(state);
        lock(&self.log.state).rate.spend(spent);
        self.log.append(lines, trace.as_ref());
        let [call, second] = news;
        if call {
            self.cut(Limit::LogBytes, format!("this call has logged {}, the most it may", self.call_bytes));
        }
        if second {
            let most = self.per_second;
            self.cut(
                Limit::LogRate,
                format!("this function has logged {most} within a second, the most it may"),
            );
        }
    }

    fn cut(&self, limit: Limit, why: String) {
        self.finish();
        self.telemetry.limit(limit);
        self.note(format!("{why}; the rest is lost"));
    }

    pub fn stdout(&self) -> Pen {
        Pen { call: self.clone(), source: Source::Stdout }
    }

    pub fn stderr(&self) -> Pen {
        Pen { call: self.clone(), source: Source::Stderr }
    }
}

impl CallState {
    fn pending(&mut self, source: Source) -> &mut Vec<u8> {
        match source {
            Source::Stdout => &mut self.stdout,
            Source::Stderr | Source::Weir => &mut self.stderr,
        }
    }
}

/// One of a guest's two output streams.
#[derive(Clone)]
pub struct Pen {
    call: CallLog,
    source: Source,
}

impl IsTerminal for Pen {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Pen {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Pen {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.call.write(self.source, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 * 1024)
    }
}

#[async_trait::async_trait]
impl Pollable for Pen {
    async fn ready(&mut self) {}
}

impl AsyncWrite for Pen {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.call.write(self.source, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
