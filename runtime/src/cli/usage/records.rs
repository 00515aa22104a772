//! `weir usage records`

use clap::{Args, ValueEnum};
use reqwest::Method;

use super::Which;
use crate::cli::Context;
use crate::cli::client::{Failure, broken};
use crate::cli::output;

#[derive(Args)]
pub struct Records {
    #[command(flatten)]
    which: Which,
    /// Only this one: what an answer's header `weir-call` says
    #[arg(long)]
    id: Option<String>,
    /// Only those of this trace
    #[arg(long, value_name = "ID")]
    trace: Option<String>,
    /// Only of this kind: call, rest or residency
    #[arg(long)]
    kind: Option<String>,
    /// JSON lines as they are in the log, which `weir usage verify FILE` looks at, or CSV
    #[arg(long, default_value = "jsonl")]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Jsonl,
    Csv,
}

impl Records {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let format = match self.format {
            Format::Jsonl => "jsonl",
            Format::Csv => "csv",
        };
        let mut query = self.which.query();
        let more = [("id", self.id), ("trace", self.trace), ("kind", self.kind)];
        query.extend(more.into_iter().filter_map(|(name, value)| Some((name, value?))));
        query.extend([("format", format.to_owned()), ("limit", "1000".to_owned())]);
        let mut after: Option<String> = None;
        loop {
            let asked: Vec<_> = query.iter().cloned().chain(after.map(|after| ("after", after))).collect();
            let request = context.client.request(Method::GET, "/v1/usage/records").query(&asked);
            let response = context.client.send(request).await?;
            if !response.status().is_success() {
                return Err(context.client.refusal(response).await);
            }
            let next = response.headers().get("weir-next").and_then(|next| next.to_str().ok());
            after = next.map(str::to_owned);
            let part = response.text().await.map_err(|error| broken(&error))?;
            if !part.is_empty() {
                output::line(part.trim_end());
            }
            if after.is_none() {
                return Ok(());
            }
        }
    }
}
