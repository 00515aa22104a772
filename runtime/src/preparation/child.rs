//! The process that opens an upload. Before it reads a byte it gives up what it does not need.

use std::any::Any;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::{Order, Said, Work};
use crate::sandbox::engine;

/// `weir prepare ORDER`, with the upload on stdin. What is found goes to stdout.
pub fn main(order: &str) -> ExitCode {
    match prepare(order) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn prepare(order: &str) -> io::Result<()> {
    let order: Order = serde_json::from_str(order)?;
    confine(&order)?;
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    let (said, artifact) = match order.work {
        Work::Component { stack } => match caught(|| engine::compile(&bytes, stack)) {
            Ok(Ok(artifact)) => (Said::Compiled(artifact.len() as u64), artifact),
            Ok(Err(rejection)) => (Said::Rejected(rejection.to_string()), vec![]),
            Err(panic) => (Said::Panicked(panic), vec![]),
        },
        Work::Model { format, shapes, limits } => {
            let said = match weir_gpu::examine(format, &bytes, shapes.as_deref(), &limits) {
                Ok(report) => Said::Examined(report),
                Err(error) => Said::Refused(error),
            };
            (said, vec![])
        }
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &said)?;
    out.write_all(b"\n")?;
    out.write_all(&artifact)?;
    out.flush()
}

/// Limits that hold for the rest of this process's life. Source: getrlimit(2).
fn confine(order: &Order) -> io::Result<()> {
    // This process's own are closed by exec; what the server itself was given by whoever started it is not.
    let open: Vec<_> = std::fs::read_dir("/proc/self/fd")?.flatten().map(|file| file.file_name()).collect();
    for descriptor in open.iter().filter_map(|name| name.to_str()?.parse::<i32>().ok()) {
        if descriptor > 2 {
            // One of them was the folder that has been read.
            let _ = nix::unistd::close(descriptor);
        }
    }
    // Where the machine runs out of memory, this process is the one to go. Not every system lets it say so.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let limit = |resource, soft: u64, hard: u64| {
        setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) }).map_err(io::Error::from)
    };
    limit(Resource::As, order.memory, order.memory)?;
    limit(Resource::Cpu, order.seconds, order.seconds.saturating_add(1))?;
    // It writes no file, not even its own core, and opens none beyond a few that its runtime may want.
    limit(Resource::Fsize, 0, 0)?;
    limit(Resource::Core, 0, 0)?;
    limit(Resource::Nofile, 16, 16)
}

fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| words(&*panic))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").chars().take(400).collect()
}
