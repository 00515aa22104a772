//! The parts, one after another, each in its process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::part::Part;
use crate::report::{self, Row, Said};
use crate::{Arguments, Asked};

/// A part's process. It does not outlive this.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail where it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Runner<'a> {
    arguments: &'a Arguments,
    /// When all is over.
    until: Instant,
    rows: Vec<Row>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    let until = began + Duration::from_secs(arguments.minutes.saturating_mul(60));
    let mut runner = Runner { arguments, until, rows: vec![] };
    let device = runner.device();
    for part in Part::ALL {
        runner.part(part, device);
    }
    let rows = runner.rows;
    report::print(&rows);
    let looked_at = device.map_or("no device", Asked::name);
    println!("looked at: {looked_at}; it took {:.0} s", began.elapsed().as_secs_f64());
    if rows.iter().any(Row::is_failure) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

impl Runner<'_> {
    /// The device that is looked at; none if it is not there.
    fn device(&mut self) -> Option<Asked> {
        const WHAT: &str = "a GPU on this machine";
        let start = Part::Start;
        let asked = self.arguments.device;
        if asked == Asked::Cpu {
            self.rows.push(Row::not_run(start.name(), WHAT, "the CPU was asked for"));
            return Some(Asked::Cpu);
        }
        let before = self.rows.len();
        let row = match self.process(start, Asked::Gpu) {
            Ok(None) if !self.rows.iter().skip(before).any(Row::is_failure) => return Some(Asked::Gpu),
            Ok(None) => Row::failed(start.name(), WHAT, "it did not start: see above"),
            Ok(Some(why)) if asked == Asked::Gpu => Row::failed(start.name(), WHAT, &why),
            Ok(Some(why)) => Row::not_run(start.name(), WHAT, &format!("needs a GPU: {why}")),
            // There is something like a GPU, and it does not work.
            Err(error) => Row::failed(start.name(), WHAT, &format!("{error:#}")),
        };
        self.rows.push(row);
        (asked != Asked::Gpu).then_some(Asked::Cpu)
    }

    fn part(&mut self, part: Part, device: Option<Asked>) {
        const WHAT: &str = "all of it";
        let only = &self.arguments.only;
        let row = match device {
            _ if !only.is_empty() && !only.contains(&part) => {
                Row::not_run(part.name(), WHAT, "it was not asked for")
            }
            None => Row::not_run(part.name(), WHAT, "needs a GPU"),
            Some(_) if Instant::now() >= self.until => {
                Row::failed(part.name(), WHAT, "no time was left for it: see --minutes")
            }
            Some(device) => match self.process(part, device) {
                Ok(None) => return,
                Ok(Some(why)) => Row::failed(part.name(), WHAT, &format!("the GPU has gone: {why}")),
                Err(error) => Row::failed(part.name(), WHAT, &format!("{error:#}")),
            },
        };
        self.rows.push(row);
    }

    /// Runs a part's process to its end, and takes down its rows; why there is no GPU, if it says so.
    ///
    /// # Errors
    /// A process that cannot be started, does not come to its end, or not in time. Its rows up to there have been taken down.
    fn process(&mut self, part: Part, device: Asked) -> anyhow::Result<Option<String>> {
        eprintln!("{}", part.name());
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--part", part.name(), "--device", device.name(), "--models"]);
        command.arg(&self.arguments.models).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process(command.spawn().context("the part's process did not start")?);
        let began = Instant::now();
        let until = self.until.min(began + part.budget());
        let lines = lines(&mut process.0)?;
        let (mut no_gpu, mut is_done) = (None, false);
        loop {
            match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => match serde_json::from_str(&line) {
                    Ok(Said::Row(row)) => {
                        eprintln!("  {}: {} {:?}", row.what, row.measured, row.verdict);
                        self.rows.push(row);
                    }
                    Ok(Said::NoGpu(why)) => no_gpu = Some(why),
                    Ok(Said::Done) => is_done = true,
                    // Something of a library's.
                    Err(_) => eprintln!("  {line}"),
                },
                Err(RecvTimeoutError::Timeout) => {
                    let after = began.elapsed().as_secs();
                    anyhow::bail!("stopped: it had not come to its end after {after} s");
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = process.0.wait()?;
        anyhow::ensure!(is_done, "its process ended in the middle, with {status}");
        // All has been looked at; a driver's libraries may still fail while the process goes.
        if !status.success() {
            eprintln!("  its process ended with {status} after that");
        }
        Ok(no_gpu)
    }
}

/// What the process says, as it comes. Ends when it does.
fn lines(process: &mut Child) -> anyhow::Result<Receiver<String>> {
    let stdout = process.stdout.take().context("the part's process has no output")?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    Ok(lines)
}
