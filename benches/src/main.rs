//! Weir against its twins: the same work on the bare engine, or on the peer that a user would pick, in the same run.
//! Machines differ and are shared, so what counts is the ratio. docs/benches.md says how to read the table.

mod batching;
mod cold;
mod door;
mod hello;
mod idle;
mod inference;
mod load;
mod metering;
mod neighbour;
mod peers;
mod residency;
mod table;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, ValueEnum};

use crate::table::Table;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Bench {
    /// Requests per second of a hello function
    Hello,
    /// First byte of a function at zero
    Cold,
    /// Latency added to a bare inference
    Inference,
    /// Ten thousand functions that nobody calls
    Idle,
    /// A small model beside a tenant that floods a large one, and shares by weight
    Neighbour,
    /// Requests that ride together
    Batching,
    /// Many models in memory for a few
    Residency,
    /// What usage records and traces cost
    Metering,
}

#[derive(Parser)]
#[command(about = "Weir against the bare engine and the peers that are installed")]
struct Arguments {
    /// Which benches to run; all if none is named
    benches: Vec<Bench>,
    /// Rounds of each measurement, pair by pair; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Functions that are deployed and idle
    #[arg(long, default_value_t = 10_000)]
    functions: usize,
    /// Also write the table as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

// One thread: the servers need the cores.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let wanted = |bench| arguments.benches.is_empty() || arguments.benches.contains(&bench);
    let rounds = arguments.rounds.max(1);
    let mut table = Table::default();
    if wanted(Bench::Hello) {
        hello::run(&mut table, rounds).await.context("hello")?;
    }
    if wanted(Bench::Cold) {
        cold::run(&mut table, rounds).await.context("cold")?;
    }
    if wanted(Bench::Inference) {
        inference::run(&mut table, rounds).await.context("inference")?;
    }
    if wanted(Bench::Idle) {
        idle::run(&mut table, arguments.functions).await.context("idle")?;
    }
    if wanted(Bench::Neighbour) {
        neighbour::run(&mut table, rounds).await.context("neighbour")?;
    }
    if wanted(Bench::Batching) {
        batching::run(&mut table, rounds).await.context("batching")?;
    }
    if wanted(Bench::Residency) {
        residency::run(&mut table, rounds).await.context("residency")?;
    }
    if wanted(Bench::Metering) {
        metering::run(&mut table, rounds).await.context("metering")?;
    }
    println!("{table}");
    if let Some(file) = arguments.json {
        std::fs::write(&file, table.json()?)
            .with_context(|| format!("{} cannot be written", file.display()))?;
    }
    Ok(())
}
