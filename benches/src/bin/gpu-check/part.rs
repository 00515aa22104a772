//! What is looked at, and how long each part may take.

use std::time::Duration;

use clap::ValueEnum;

use crate::bench::Bench;
use crate::{batching, billing, cold, correctness, critical, latency, limits, memory, quota};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Whether there is a GPU, and how long it takes to start
    #[value(hide = true)]
    Start,
    /// Each model against the CPU, and a batch against its rows
    Correctness,
    /// Warm latency through the door against the direct engine
    Latency,
    /// What the context, a tenant, and 32 tenants of one model take
    Memory,
    /// Random models, sizes and quotas of 64 tenants at once
    Quota,
    /// A small critical model beside a tenant that floods a large one
    Critical,
    /// Sixteen callers whose requests ride together
    Batching,
    /// From a model's bytes to its first answer
    Cold,
    /// Billed time against the time that the device measures
    Billing,
    /// A job that needs more memory than there is, beside a neighbour
    Limits,
}

impl Part {
    /// All that is run after [`Part::Start`], in this order.
    pub const ALL: [Self; 9] = [
        Self::Correctness,
        Self::Latency,
        Self::Memory,
        Self::Quota,
        Self::Critical,
        Self::Batching,
        Self::Cold,
        Self::Billing,
        Self::Limits,
    ];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Correctness => "correctness",
            Self::Latency => "latency",
            Self::Memory => "memory",
            Self::Quota => "quota",
            Self::Critical => "critical",
            Self::Batching => "batching",
            Self::Cold => "cold",
            Self::Billing => "billing",
            Self::Limits => "limits",
        }
    }

    /// The most time that it may take. All together, but for a first start: less than six minutes.
    pub fn budget(self) -> Duration {
        Duration::from_secs(match self {
            // Kernels are compiled where this machine has not done so before. What is compiled is kept.
            Self::Start => 300,
            Self::Correctness => 80,
            Self::Latency => 45,
            Self::Memory => 25,
            Self::Quota => 45,
            Self::Critical => 40,
            Self::Batching => 25,
            Self::Cold => 25,
            Self::Billing => 30,
            Self::Limits => 30,
        })
    }

    /// Looks at it, in this process.
    ///
    /// # Errors
    /// What kept it from being looked at.
    pub fn run(self, bench: &Bench) -> anyhow::Result<()> {
        match self {
            Self::Start => bench.start(),
            Self::Correctness => correctness::run(bench),
            Self::Latency => latency::run(bench),
            Self::Memory => memory::run(bench),
            Self::Quota => quota::run(bench),
            Self::Critical => critical::run(bench),
            Self::Batching => batching::run(bench),
            Self::Cold => cold::run(bench),
            Self::Billing => billing::run(bench),
            Self::Limits => limits::run(bench),
        }
    }
}
