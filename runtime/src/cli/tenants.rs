//! `weir tenants`

use std::path::Path;

use clap::{Args, Subcommand};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use weir::signature::PublicKey;

use super::Context;
use super::client::Failure;
use super::output::{self, Fields, list, size, text};
use super::sign;

#[derive(Args)]
pub struct Tenants {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// List tenants and what they may have
    List,
    /// Show a tenant: what holds for it, and what it uses of that; a tenant's own key may too
    Show {
        /// The tenant's name
        name: String,
    },
    /// Make a tenant, or set what one may have; what is not said stays as it is
    Set(Box<Set>),
}

#[derive(Args)]
struct Set {
    /// The tenant's name
    name: String,
    /// What people call it
    #[arg(long)]
    display_name: Option<String>,
    /// Whether its keys and functions work: active or suspended
    #[arg(long)]
    state: Option<String>,
    /// Its part of the devices' time against that of others: 1 to 1000
    #[arg(long)]
    weight: Option<u32>,
    /// The most urgent class that its functions may ask for: critical, standard or batch
    #[arg(long)]
    class: Option<String>,
    /// The most of its inferences that may wait for a device
    #[arg(long)]
    queue: Option<u64>,
    /// How often its functions may be called in a second
    #[arg(long, value_name = "CALLS")]
    calls_per_second: Option<u32>,
    /// How often at once, after a pause; as in a second if it is not set
    #[arg(long, value_name = "CALLS")]
    call_burst: Option<u32>,
    /// The most memory of a device that its models and jobs may have, such as 512MiB
    #[arg(long, value_name = "SIZE")]
    device_memory: Option<String>,
    /// The same of the GPU's memory; as --device-memory if it is not set
    #[arg(long, value_name = "SIZE")]
    gpu_memory: Option<String>,
    /// The most calls of its functions that may run at one time
    #[arg(long, value_name = "CALLS")]
    max_concurrent_calls: Option<u32>,
    /// The most calls of its functions that may wait for their turn
    #[arg(long, value_name = "CALLS")]
    max_queued_calls: Option<u32>,
    /// Sandboxes that are kept for it, however many others have
    #[arg(long, value_name = "SANDBOXES")]
    reserved_sandboxes: Option<u32>,
    /// The most functions that it may have
    #[arg(long, value_name = "FUNCTIONS")]
    max_functions: Option<u32>,
    /// The most models that it may have
    #[arg(long, value_name = "MODELS")]
    max_models: Option<u32>,
    /// The most keys that it may have; the oldest of those that have ended make way for new ones
    #[arg(long, value_name = "KEYS")]
    max_keys: Option<u32>,
    /// The most bytes that its components and models may have, such as 10GiB
    #[arg(long, value_name = "SIZE")]
    stored_bytes: Option<String>,
    /// What it may spend in a month before it is told, in milliseconds of the devices' time
    #[arg(long, value_name = "UNITS")]
    budget_soft: Option<u64>,
    /// What it may spend in a month, in milliseconds of the devices' time
    #[arg(long, value_name = "UNITS")]
    budget_hard: Option<u64>,
    /// What it may spend in a month before it is told, in the currency of its rate card, such as 80.00
    #[arg(long, value_name = "AMOUNT")]
    spend_soft: Option<String>,
    /// What it may spend in a month, in the currency of its rate card
    #[arg(long, value_name = "AMOUNT")]
    spend_hard: Option<String>,
    /// A key that may sign its components: a name, and a file with the public key (PEM). May be given more than once; all
    /// that are given take the place of those before
    #[arg(long = "signing-key", value_name = "NAME=FILE")]
    signing_keys: Vec<String>,
    /// Begin with the operator's defaults, not with what was set before
    #[arg(long)]
    reset: bool,
}

impl Tenants {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self.action.unwrap_or(Action::List) {
            Action::List => {
                let listed = context.client.list("/v1/tenants", "tenants").await?;
                if context.json {
                    output::json(&listed);
                } else {
                    table(list(listed.at("tenants")));
                }
            }
            Action::Show { name } => {
                let tenant = context.client.get(&format!("/v1/tenants/{name}")).await?;
                if context.json {
                    output::json(&tenant);
                } else {
                    show(&tenant);
                }
            }
            Action::Set(set) => {
                let (status, tenant) = set.run(context).await?;
                if context.json {
                    output::json(&tenant);
                } else {
                    let name = text(tenant.at("tenant"));
                    output::line(match status {
                        StatusCode::CREATED => format!("{name} is a new tenant"),
                        _ => format!("{name} was there, and is changed"),
                    });
                    table(&[tenant]);
                }
            }
        }
        Ok(())
    }
}

impl Set {
    /// The tenant as it is now, and whether it was made: 201.
    async fn run(self, context: &Context) -> Result<(StatusCode, Value), Failure> {
        let client = &context.client;
        let path = format!("/v1/tenants/{}", self.name);
        let keys: Vec<Value> =
            self.signing_keys.iter().map(|pair| signing_key(pair)).collect::<Result<_, Failure>>()?;
        let signing_keys = Some(keys).filter(|keys| !keys.is_empty()).map(Value::from);
        let before = match self.reset {
            true => Value::Null,
            // The list has all that there are; one that is not there has nothing set.
            false => {
                let listed = client.list("/v1/tenants", "tenants").await?;
                let tenant =
                    list(listed.at("tenants")).iter().find(|tenant| *tenant.at("tenant") == self.name);
                tenant.map_or(Value::Null, |tenant| tenant.at("set").clone())
            }
        };
        let share = output::lay_over(
            &before,
            [
                ("display_name", self.display_name.map(Value::from)),
                ("state", self.state.map(Value::from)),
                ("weight", self.weight.map(Value::from)),
                ("class", self.class.map(Value::from)),
                ("queue", self.queue.map(Value::from)),
                ("calls_per_second", self.calls_per_second.map(Value::from)),
                ("call_burst", self.call_burst.map(Value::from)),
                ("device_memory", self.device_memory.map(Value::from)),
                ("gpu_memory", self.gpu_memory.map(Value::from)),
                ("max_concurrent_calls", self.max_concurrent_calls.map(Value::from)),
                ("max_queued_calls", self.max_queued_calls.map(Value::from)),
                ("reserved_sandboxes", self.reserved_sandboxes.map(Value::from)),
                ("max_functions", self.max_functions.map(Value::from)),
                ("max_models", self.max_models.map(Value::from)),
                ("max_keys", self.max_keys.map(Value::from)),
                ("stored_bytes", self.stored_bytes.map(Value::from)),
                ("budget_soft", self.budget_soft.map(Value::from)),
                ("budget_hard", self.budget_hard.map(Value::from)),
                ("spend_soft", self.spend_soft.map(Value::from)),
                ("spend_hard", self.spend_hard.map(Value::from)),
                ("signing_keys", signing_keys),
            ],
        );
        client.answer(client.request(Method::PUT, &path).json(&share)).await
    }
}

/// A key to sign with, from its name and its file.
fn signing_key(pair: &str) -> Result<Value, Failure> {
    let (name, file) = pair
        .split_once('=')
        .ok_or_else(|| Failure::Usage(format!("--signing-key {pair}: write NAME=FILE")))?;
    let key = sign::read(Path::new(file), PublicKey::parse)?;
    Ok(json!({ "name": name, "public_key": key }))
}

/// A line for each thing that holds, with what is used of it where that is counted.
fn show(tenant: &Value) {
    for field in ["tenant", "display_name", "state", "weight", "class", "queue"] {
        output::line(format!("{field:<22}{}", text(tenant.at(field))));
    }
    output::line("");
    let plain = |field: &str| text(tenant.at(field));
    let sized = |field: &str| size(tenant.at(field));
    let used = tenant.at("used");
    let budget = || text(used.at("budget"));
    let spend = || text(used.at("spend"));
    let none = || "-".to_owned();
    let row = |field: &str, most: String, used: String| [field.to_owned(), most, used];
    output::table(
        ["QUOTA", "MOST", "USED"],
        [
            row("calls_per_second", plain("calls_per_second"), none()),
            row("call_burst", plain("call_burst"), none()),
            row("max_concurrent_calls", plain("max_concurrent_calls"), text(used.at("running_calls"))),
            row("max_queued_calls", plain("max_queued_calls"), text(used.at("queued_calls"))),
            row("reserved_sandboxes", plain("reserved_sandboxes"), none()),
            row("max_functions", plain("max_functions"), text(used.at("functions"))),
            row("max_models", plain("max_models"), text(used.at("models"))),
            row("stored_bytes", sized("stored_bytes"), size(used.at("stored_bytes"))),
            row("device_memory", sized("device_memory"), none()),
            row("gpu_memory", sized("gpu_memory"), none()),
            row("budget_soft", plain("budget_soft"), budget()),
            row("budget_hard", plain("budget_hard"), budget()),
            row("spend_soft", plain("spend_soft"), spend()),
            row("spend_hard", plain("spend_hard"), spend()),
        ],
    );
}

fn table(tenants: &[Value]) {
    output::table(
        ["TENANT", "STATE", "WEIGHT", "CLASS", "QUEUE", "CALLS/S", "DEVICE MEMORY", "GPU MEMORY"],
        tenants.iter().map(|tenant| {
            let [name, state, weight, class, queue, rate] =
                ["tenant", "state", "weight", "class", "queue", "calls_per_second"]
                    .map(|field| text(tenant.at(field)));
            let [memory, gpu] = ["device_memory", "gpu_memory"].map(|field| size(tenant.at(field)));
            [name, state, weight, class, queue, rate, memory, gpu]
        }),
    );
}
