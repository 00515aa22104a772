//! One check of a device on the machine at hand: whether it is right, fast, fair, and kept to its bounds, as one table.
//!
//! It takes the GPU if there is one, and the CPU otherwise; the same code looks at both, and what only a GPU can show is a
//! row that says so. It needs this binary and a folder of models: no toolchain, no network. `docs/gpu.md` says how to run it
//! and how to read it.
//!
//! Each part runs in a process of its own, which is stopped when its time is over: a device that hangs or breaks takes one
//! part with it, and each part finds the device as a server that has just started finds it.
//!
//! ```text
//! part.rs          what is looked at, and how long each part may take
//! runner.rs        the parts, one after another, each in its process
//! report.rs        rows, and the table of them
//! bench.rs         what a part works with: a device behind its door
//! models.rs        the models, and what they read
//! graphs.rs        models made on the spot: a transformer, and one that wants much memory
//! twin.rs cuda.rs  the same model on the direct engine
//! correctness.rs latency.rs memory.rs quota.rs critical.rs batching.rs cold.rs billing.rs limits.rs
//! ```

mod batching;
mod bench;
mod billing;
mod cold;
mod correctness;
mod critical;
mod cuda;
#[path = "../../door.rs"]
#[allow(dead_code, reason = "what the benches need of it besides")]
mod door;
mod graphs;
mod latency;
mod limits;
mod memory;
mod models;
mod part;
mod quota;
mod report;
mod runner;
#[path = "../../table.rs"]
#[allow(dead_code, reason = "of the benches' table only the figures are wanted")]
mod table;
mod twin;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::part::Part;

/// Which device is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Asked {
    /// The GPU if there is one, otherwise the CPU
    Auto,
    /// The GPU; that there is none is a failure
    Gpu,
    /// The CPU
    Cpu,
}

impl Asked {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Gpu => "gpu",
            Self::Cpu => "cpu",
        }
    }
}

#[derive(Parser)]
#[command(about = "Checks a device on this machine, and prints one table; exits with 1 if a bound is missed")]
pub struct Arguments {
    /// The folder of models, as `make models` fills it
    #[arg(long, default_value = "models")]
    models: PathBuf,
    /// The device to look at
    #[arg(long, default_value = "auto")]
    device: Asked,
    /// The most minutes that all of it may take
    #[arg(long, default_value_t = 7)]
    minutes: u64,
    /// A part to run, instead of all; may be given several times
    #[arg(long)]
    only: Vec<Part>,
    /// The part that this process is
    #[arg(long, hide = true)]
    part: Option<Part>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.part {
        Some(part) => bench::work(part, arguments.device, arguments.models),
        None => runner::run(&arguments),
    }
}
