//! `weir top`: who uses the devices, from two looks at `GET /v1/devices`.
//!
//! A tenant's share is the device time that it had between the looks, of all that the device's lanes could have given.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::client::Failure;
use super::devices::{resident, tenants};
use super::output::{self, Fields, list, size, text};
use super::{Context, devices};

#[derive(Args)]
pub struct Top {
    /// How long between two looks
    #[arg(long, default_value = "1s", value_parser = weir::units::span::parse)]
    interval: Duration,
    /// Look twice, print what was between, and end
    #[arg(long)]
    once: bool,
}

/// Moves to the top left and clears what is there. Source: ECMA-48.
const CLEAR: &str = "\x1b[H\x1b[2J";

impl Top {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        if self.interval.is_zero() {
            return Err(Failure::Usage("--interval must be longer than nothing".to_owned()));
        }
        let live = !self.once && !context.json && std::io::stdout().is_terminal();
        let mut before = look(context).await?;
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.interval) => {}
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
            let after = look(context).await?;
            let between = between(&before, &after);
            if context.json {
                output::json(&between);
                return Ok(());
            }
            if live {
                let _ = write!(std::io::stdout(), "{CLEAR}");
            }
            show(&between);
            resident(list(after.at("resident")));
            if !live {
                return Ok(());
            }
            before = after;
        }
    }
}

async fn look(context: &Context) -> Result<Value, Failure> {
    context.client.get("/v1/devices").await
}

/// What was between two looks: each device as it is now, and what each tenant had of it.
fn between(before: &Value, after: &Value) -> Value {
    let elapsed = nanos(after.at("at_ns")).saturating_sub(nanos(before.at("at_ns")));
    let device = |device: &Value| {
        let earlier =
            list(before.at("devices")).iter().find(|other| other.at("device") == device.at("device"));
        let earlier = earlier.unwrap_or(&Value::Null);
        let possible = u128::from(elapsed) * u128::from(nanos(device.at("lanes")));
        let tenant = |tenant: devices::Tenant<'_>| {
            let of = |device: &Value| nanos(device.at("device_time_ns").at(&tenant.name));
            let used = of(device).saturating_sub(of(earlier));
            let thousandths = (u128::from(used) * 1000).checked_div(possible).unwrap_or(0);
            json!({
                "tenant": tenant.name,
                "device_time_ns": used,
                "share": u64::try_from(thousandths).unwrap_or(0) as f64 / 1000.0,
                "queued": nanos(device.at("queued_by").at(&tenant.name)),
                "memory": tenant.account,
            })
        };
        let tenants: Vec<Value> = tenants(device).into_iter().map(tenant).collect();
        let fields = ["device", "kind", "lanes", "busy", "queued", "suspended"];
        let mut shown: BTreeMap<&str, Value> =
            fields.into_iter().map(|field| (field, device.at(field).clone())).collect();
        for field in ["used", "capacity"] {
            shown.insert(field, device.at("memory").at(field).clone());
        }
        shown.insert("tenants", tenants.into());
        json!(shown)
    };
    json!({
        "elapsed_ns": elapsed,
        "devices": list(after.at("devices")).iter().map(device).collect::<Vec<_>>(),
    })
}

fn nanos(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn show(between: &Value) {
    output::table(
        ["DEVICE", "KIND", "LANES", "BUSY", "WAITING", "SUSPENDED", "MEMORY", "OF"],
        list(between.at("devices")).iter().map(|device| {
            let [name, kind, lanes, busy, queued, suspended] =
                ["device", "kind", "lanes", "busy", "queued", "suspended"]
                    .map(|field| text(device.at(field)));
            [name, kind, lanes, busy, queued, suspended, size(device.at("used")), size(device.at("capacity"))]
        }),
    );
    for device in list(between.at("devices")) {
        output::line("");
        output::table(
            ["TENANT", "SHARE", "WAITING", "WEIGHTS", "ACTIVATIONS", "RESERVE", "QUOTA"],
            list(device.at("tenants")).iter().map(|tenant| {
                let [weights, activations, reserve, quota] = ["weights", "activations", "reserve", "quota"]
                    .map(|field| size(tenant.at("memory").at(field)));
                let share = tenant.at("share").as_f64().unwrap_or(0.0) * 100.0;
                [
                    text(tenant.at("tenant")),
                    format!("{share:.1} %"),
                    text(tenant.at("queued")),
                    weights,
                    activations,
                    reserve,
                    quota,
                ]
            }),
        );
    }
    output::line("");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: u64, time: &Value, accounts: &Value) -> Value {
        json!({
            "at_ns": at,
            "devices": [{
                "device": "cpu0", "kind": "cpu", "lanes": 2, "busy": 1, "queued": 3, "suspended": 0,
                "queued_by": { "b": 3 }, "device_time_ns": time,
                "memory": { "used": 7, "capacity": 10, "accounts": accounts },
            }],
        })
    }

    #[test]
    fn a_share_is_of_what_the_lanes_could_have_given() {
        let account = json!([{ "tenant": "c", "weights": 7, "activations": 0, "reserve": 0, "quota": null }]);
        let before = look(1_000, &json!({ "a": 500 }), &json!([]));
        let after = look(2_000, &json!({ "a": 1_000, "b": 1_000 }), &account);
        let between = between(&before, &after);
        assert_eq!(between["elapsed_ns"], 1_000);
        let tenants = &between["devices"][0]["tenants"];
        let of = |index: usize, field: &str| tenants[index][field].clone();
        assert_eq!([of(0, "tenant"), of(0, "share"), of(0, "queued")], [json!("a"), json!(0.25), json!(0)]);
        assert_eq!([of(1, "tenant"), of(1, "share"), of(1, "queued")], [json!("b"), json!(0.5), json!(3)]);
        assert_eq!([of(2, "tenant"), of(2, "share")], [json!("c"), json!(0.0)]);
        assert_eq!(tenants[2]["memory"]["weights"], 7);
    }

    #[test]
    fn a_server_that_was_started_anew_has_no_share_below_nothing() {
        let before = look(5_000, &json!({ "a": 900 }), &json!([]));
        let between = between(&before, &look(100, &json!({ "a": 50 }), &json!([])));
        assert_eq!(between["devices"][0]["tenants"][0]["share"], 0.0);
    }
}
