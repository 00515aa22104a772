//! The process and its runtime, as the system and the runtime count them. Sources: proc(5), proc_pid_status(5).

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::names;
use super::snapshot::Snapshot;

/// Adds what the process has used, and uses. What the system does not tell has no value.
pub fn add(snapshot: &mut Snapshot) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let bytes = |name: &str| field(name).map(|kib| kib.saturating_mul(1024));
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu = Duration::try_from(cpu).unwrap_or_default();
    // One of them is that which the folder is read with.
    let fds = fs::read_dir("/proc/self/fd").map(|fds| fds.count().saturating_sub(1) as u64).ok();
    snapshot.one(&names::PROCESS_CPU, cpu.as_secs_f64());
    snapshot.known(&names::PROCESS_RESIDENT, bytes("VmRSS"));
    snapshot.known(&names::PROCESS_VIRTUAL, bytes("VmSize"));
    snapshot.known(&names::PROCESS_OPEN_FDS, fds);
    snapshot.known(&names::PROCESS_MAX_FDS, getrlimit(Resource::Nofile).current);
    snapshot.known(&names::PROCESS_THREADS, field("Threads"));
    let since = snapshot.since.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    snapshot.one(&names::PROCESS_START, since.as_secs_f64());
    runtime(snapshot);
}

/// Of the runtime that this is called in.
fn runtime(snapshot: &mut Snapshot) {
    let metrics = tokio::runtime::Handle::current().metrics();
    let workers = metrics.num_workers();
    let busy: Duration = (0..workers).map(|worker| metrics.worker_total_busy_duration(worker)).sum();
    snapshot.one(&names::WORKERS, workers);
    snapshot.one(&names::WORKERS_BUSY, busy.as_secs_f64());
    snapshot.one(&names::TASKS, metrics.num_alive_tasks());
    snapshot.one(&names::QUEUED_TASKS, metrics.global_queue_depth());
}
