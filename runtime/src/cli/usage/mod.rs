//! `weir usage`

mod records;
mod sums;
mod verify;

use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};

use super::Context;
use super::client::Failure;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Usage {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    sums: sums::Sums,
}

#[derive(Subcommand)]
enum Action {
    /// Show usage records, oldest first
    Records(records::Records),
    /// See that usage is as it was written and adds up, without a server's help
    Verify(verify::Verify),
}

impl Usage {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self.action {
            None => self.sums.run(context).await,
            Some(Action::Records(records)) => records.run(context).await,
            Some(Action::Verify(verify)) => verify.run(context.json).await,
        }
    }
}

/// Which usage is asked for.
#[derive(Args)]
struct Which {
    /// From when on: RFC 3339, as 2026-12-01T00:00:00Z; the start of this month if not set
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Until when; now if not set
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// For how long up to now, as 7d or 12h
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration, conflicts_with = "from")]
    since: Option<Duration>,
    /// Only this function's
    #[arg(long)]
    function: Option<String>,
    /// Only with this model
    #[arg(long)]
    model: Option<String>,
    /// Only of calls with the key of this id
    #[arg(long, value_parser = super::keys::id)]
    key: Option<String>,
    /// Only of this class: critical, standard or batch
    #[arg(long)]
    class: Option<String>,
    /// Only of calls with this end: answered, failed, timed_out, refused or cancelled
    #[arg(long)]
    outcome: Option<String>,
    /// Only of this device
    #[arg(long)]
    device: Option<String>,
}

impl Which {
    /// As a query.
    fn query(&self) -> Vec<(&'static str, String)> {
        let since = self.since.and_then(|since| SystemTime::now().checked_sub(since));
        let since = since.map(|at| humantime::format_rfc3339_seconds(at).to_string());
        let fields = [
            ("from", self.from.clone().or(since)),
            ("to", self.to.clone()),
            ("function", self.function.clone()),
            ("model", self.model.clone()),
            ("key", self.key.clone()),
            ("class", self.class.clone()),
            ("outcome", self.outcome.clone()),
            ("device", self.device.clone()),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}
