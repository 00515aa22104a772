//! `weir traffic` and `weir rollback`

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::Context;
use super::client::Failure;
use super::output::{self, Fields, list, text};

#[derive(Args)]
pub struct Traffic {
    /// The function's name
    name: String,
    /// A revision and its weight; the others get no calls
    #[arg(required = true, value_name = "REVISION=WEIGHT", value_parser = share)]
    shares: Vec<(u64, u32)>,
    /// A header by whose value callers stay with one revision
    #[arg(long, value_name = "NAME")]
    sticky_header: Option<String>,
}

fn share(pair: &str) -> Result<(u64, u32), String> {
    let numbers = pair
        .split_once('=')
        .and_then(|(revision, weight)| Some((revision.parse().ok()?, weight.parse().ok()?)));
    numbers.ok_or_else(|| "write REVISION=WEIGHT, two whole numbers".to_owned())
}

impl Traffic {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let share = |(revision, weight): &(u64, u32)| json!({ "revision": revision, "weight": weight });
        let shares: Vec<Value> = self.shares.iter().map(share).collect();
        let body = json!({ "traffic": shares, "sticky_header": self.sticky_header });
        let path = format!("/v1/functions/{}/traffic", self.name);
        let set = context.client.json(context.client.request(Method::PUT, &path).json(&body)).await?;
        show(context, &self.name, &set);
        Ok(())
    }
}

#[derive(Args)]
pub struct Rollback {
    /// The function's name
    name: String,
    /// The revision that gets all of the traffic; the one that had it before if not given
    #[arg(long, value_name = "REVISION")]
    to: Option<u64>,
}

impl Rollback {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let function = format!("/v1/functions/{}", self.name);
        // A revision that is named stays the same however often the request comes; without one, the second would undo the
        // first.
        let revision = match self.to {
            Some(to) => json!(to),
            None => context.client.get(&function).await?.at("rollback_to").clone(),
        };
        let request = context.client.request(Method::POST, &format!("{function}/rollback"));
        let set = context.client.json(request.json(&json!({ "revision": revision }))).await;
        let set = set.map_err(|failure| match failure {
            Failure::Unreachable(text) if !revision.is_null() => Failure::Unreachable(format!(
                "{text}; it may be done all the same: `weir rollback {} --to {revision}` does no harm",
                self.name
            )),
            other => other,
        })?;
        show(context, &self.name, &set);
        Ok(())
    }
}

fn show(context: &Context, name: &str, set: &Value) {
    if context.json {
        output::json(set);
        return;
    }
    output::line(format!("{name}: {}", shares(set.at("traffic"))));
    if let Some(header) = set.at("sticky_header").as_str() {
        output::line(format!("callers stay by their header {header}"));
    }
}

/// Weights on a line, as `weir traffic` takes them.
pub fn shares(traffic: &Value) -> String {
    let share = |share: &Value| format!("{}={}", text(share.at("revision")), text(share.at("weight")));
    list(traffic).iter().map(share).collect::<Vec<_>>().join(" ")
}
