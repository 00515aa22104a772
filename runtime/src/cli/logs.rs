//! `weir logs`

use clap::Args;
use futures::StreamExt;
use reqwest::Method;
use serde_json::Value;

use super::Context;
use super::client::{Failure, broken};
use super::output::{self, Fields, list, text};

#[derive(Args)]
pub struct Logs {
    /// The function's name
    name: String,
    /// Stay, and print lines as they come
    #[arg(short, long)]
    follow: bool,
    /// How many lines of the past
    #[arg(long, default_value_t = 100)]
    tail: usize,
}

impl Logs {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let path = format!("/v1/functions/{}/logs?tail={}&follow={}", self.name, self.tail, self.follow);
        let request = context.client.request(Method::GET, &path);
        if !self.follow {
            let logs = context.client.json(request).await?;
            for line in list(logs.at("lines")) {
                print(context, line);
            }
            return Ok(());
        }
        let response = context.client.send(request).await?;
        if !response.status().is_success() {
            return Err(context.client.refusal(response).await);
        }
        // Server-sent events: `data: JSON` on a line each; other lines are separators and signs of life.
        let (mut pieces, mut pending) = (response.bytes_stream(), Vec::new());
        while let Some(piece) = pieces.next().await {
            pending.extend_from_slice(&piece.map_err(|error| broken(&error))?);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                if let Some(data) = line.strip_prefix(b"data:")
                    && let Ok(line) = serde_json::from_slice::<Value>(data)
                {
                    print(context, &line);
                }
            }
        }
        Ok(())
    }
}

fn print(context: &Context, line: &Value) {
    if context.json {
        output::line(line.to_string());
    } else if let Some(missed) = line.at("lines").as_u64() {
        output::line(format!("({missed} lines missed)"));
    } else {
        output::line(format!(
            "{} r{} #{} {:6} {}",
            text(line.at("time")),
            line.at("revision"),
            line.at("call"),
            text(line.at("source")),
            text(line.at("text"))
        ));
    }
}
