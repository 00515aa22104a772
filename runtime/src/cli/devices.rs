//! `weir devices`

use clap::Args;
use serde_json::Value;

use super::Context;
use super::client::Failure;
use super::output::{self, Fields, digest, list, size, text, time};

#[derive(Args)]
pub struct Devices {}

impl Devices {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let shown = context.client.get("/v1/devices").await?;
        if context.json {
            output::json(&shown);
            return Ok(());
        }
        for device in list(shown.at("devices")) {
            show(device);
        }
        resident(list(shown.at("resident")));
        gpu(shown.at("gpu"));
        Ok(())
    }
}

fn show(device: &Value) {
    let memory = device.at("memory");
    output::line(format!("device     {} ({})", text(device.at("device")), text(device.at("kind"))));
    output::line(format!("lanes      {} of {} in use", device.at("busy"), device.at("lanes")));
    output::line(format!(
        "queue      {} waiting, {} suspended ({} suspensions so far)",
        device.at("queued"),
        device.at("suspended"),
        device.at("suspensions")
    ));
    output::line(format!("memory     {} of {} in use", size(memory.at("used")), size(memory.at("capacity"))));
    let driver = device.at("driver");
    if !driver.is_null() {
        let [free, used, context] = ["free", "pool_used", "context"].map(|field| size(driver.at(field)));
        output::line(format!(
            "driver     {free} free, {used} in tensors, {context} in use before the first of them"
        ));
    }
    if device.at("failed") == &Value::Bool(true) {
        output::line("failed     nothing runs on it until the server is started again");
    }
    let rows = tenants(device);
    if !rows.is_empty() {
        output::line("");
        output::table(
            ["TENANT", "DEVICE TIME", "WAITING", "WEIGHTS", "ACTIVATIONS", "RESERVE", "QUOTA"],
            rows.into_iter().map(|tenant| {
                let [weights, activations, reserve, quota] = ["weights", "activations", "reserve", "quota"]
                    .map(|field| size(tenant.account.at(field)));
                let waiting = device.at("queued_by").at(&tenant.name).as_u64().unwrap_or(0).to_string();
                let used = time(device.at("device_time_ns").at(&tenant.name));
                [tenant.name, used, waiting, weights, activations, reserve, quota]
            }),
        );
    }
    output::line("");
}

/// What a device shows about a tenant.
pub struct Tenant<'a> {
    pub name: String,
    /// Its account of the device's memory; null if it has none.
    pub account: &'a Value,
}

/// All tenants that a device knows, by name.
pub fn tenants(device: &Value) -> Vec<Tenant<'_>> {
    let accounts = list(device.at("memory").at("accounts"));
    let keys =
        |field: &str| device.at(field).as_object().into_iter().flat_map(|fields| fields.keys().cloned());
    let with_accounts = accounts.iter().map(|account| text(account.at("tenant")));
    let mut names: Vec<String> =
        keys("device_time_ns").chain(keys("queued_by")).chain(with_accounts).collect();
    names.sort();
    names.dedup();
    let account = |name: &String| accounts.iter().find(|account| *account.at("tenant") == **name);
    names.into_iter().map(|name| Tenant { account: account(&name).unwrap_or(&Value::Null), name }).collect()
}

/// The graphs in memory.
pub fn resident(graphs: &[Value]) {
    if graphs.is_empty() {
        output::line("no graphs in memory");
        return;
    }
    output::table(
        ["GRAPH", "OWNER", "DEVICE", "ON CPU", "SIZE", "IN USE", "IDLE", "PINNED", "DIGEST"],
        graphs.iter().map(|graph| {
            let idle = graph.at("idle_ms").as_u64();
            let device = match graph.at("waits") {
                Value::Bool(true) => format!("{}, waiting", text(graph.at("device"))),
                _ => text(graph.at("device")),
            };
            let host = list(graph.at("host_operators")).len();
            let pinned = if graph.at("pinned") == &Value::Bool(true) { "yes" } else { "-" };
            [
                text(graph.at("model")),
                text(graph.at("owner")),
                device,
                if host == 0 { "-".to_owned() } else { format!("{host} operators") },
                size(graph.at("bytes")),
                text(graph.at("leases")),
                idle.map_or("-".to_owned(), |millis| format!("{:.1} s", millis as f64 / 1e3)),
                pinned.to_owned(),
                digest(graph.at("digest")),
            ]
        }),
    );
}

fn gpu(gpu: &Value) {
    if gpu.at("available") == &Value::Bool(true) {
        return;
    }
    output::line("");
    output::line(format!("gpu        none: {}", text(gpu.at("reason"))));
    let missing = list(gpu.at("missing"));
    if missing.is_empty() {
        output::line("           everything that a GPU needs of this machine is there");
        return;
    }
    output::line("           and these parts are missing on this machine:");
    for part in missing {
        output::line(format!("             {:<14} {}", text(part.at("part")), text(part.at("purpose"))));
    }
}
