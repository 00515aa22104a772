//! Settings that change while the server runs: the file is read again, and what of it can hold at once does.
//!
//! What was made of a setting at the start, such as the pool of sandboxes, keeps its value until the next start. So do the
//! networks of `[egress]`: connections that functions have there would outlive a change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use super::Settings;
use crate::audit::{self, Changed};

/// Settings that hold at once; with a dot at the end, all of a section.
const LIVE: &[&str] = &[
    "stop_delay",
    "stop_timeout",
    "http.head_bytes",
    "http.head_timeout",
    "http.write_timeout",
    "http.upload_timeout",
    "http.domain",
    "http.hostnames",
    "functions.",
    "metrics.",
    "limits.model_bytes",
    "limits.cpu_time",
    "limits.request_bytes",
    "limits.response_bytes",
    "limits.header_bytes",
    "limits.host_bytes",
    "limits.resources",
    "limits.log_bytes",
    "limits.log_bytes_per_second",
    "limits.outbound_requests",
    "limits.request_timeout",
    "limits.startup_timeout",
    "limits.idle_timeout",
    "limits.queue",
    "limits.queue_timeout",
    "limits.inference_timeout",
    "limits.keep_alive",
    "limits.min_resident",
    "limits.max_batch",
    "limits.max_queue_delay",
    "metering.sync_interval",
    "metering.flush_interval",
    "metering.keep",
    "metering.disk_bytes",
    "metering.when_full",
    "metering.held_records",
    "tenant.",
    "models.",
    "policy.",
];

/// The settings that hold now.
pub struct Live(RwLock<Arc<Settings>>);

/// A setting that is not what it was.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name, with its section's: `tenant.queue`.
    pub setting: String,
    pub before: Value,
    pub after: Value,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.setting, self.before, self.after)
    }
}

impl From<&Change> for Changed {
    fn from(change: &Change) -> Self {
        let digest = |value: &Value| (!value.is_null()).then(|| audit::digest(&value.to_string()));
        Self {
            kind: "settings".to_owned(),
            name: change.setting.clone(),
            before: digest(&change.before),
            after: digest(&change.after),
        }
    }
}

/// What reading the settings again has come to.
#[derive(Debug)]
pub struct Reloaded {
    /// What holds from now on.
    pub now: Vec<Change>,
    /// What holds from the next start on.
    pub later: Vec<Change>,
}

impl Live {
    pub fn new(settings: Settings) -> Self {
        Self(RwLock::new(Arc::new(settings)))
    }

    /// The settings as they are at this moment.
    pub fn now(&self) -> Arc<Settings> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over what of these settings can hold at once, all of it at one time.
    ///
    /// # Errors
    /// A sentence that names the setting that is wrong, together with those that stay; nothing has changed then.
    pub fn reload(&self, read: &Settings) -> Result<Reloaded, String> {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (settings, reloaded) = merge(&held, read)?;
        settings.check()?;
        *held = Arc::new(settings);
        Ok(reloaded)
    }
}

/// The settings before, with what can change at once as it was read.
fn merge(before: &Settings, read: &Settings) -> Result<(Settings, Reloaded), String> {
    let tree = |settings: &Settings| serde_json::to_value(settings).map_err(|error| error.to_string());
    let (mut merged, read) = (tree(before)?, tree(read)?);
    let mut reloaded = Reloaded { now: vec![], later: vec![] };
    for change in changes(&merged, &read) {
        let slot = merged.pointer_mut(&format!("/{}", change.setting.replace('.', "/")));
        match slot.filter(|_| is_live(&change.setting)) {
            Some(slot) => {
                slot.clone_from(&change.after);
                reloaded.now.push(change);
            }
            None => reloaded.later.push(change),
        }
    }
    let merged = serde_json::from_value(merged).map_err(|error| error.to_string())?;
    Ok((merged, reloaded))
}

fn is_live(setting: &str) -> bool {
    LIVE.iter().any(|live| setting == *live || live.ends_with('.') && setting.starts_with(live))
}

/// What is in one tree and not in the other, or is another value there, by its name.
pub fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let (old, new) = (leaves(before), leaves(after));
    let settings: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let change = |setting: &String| Change {
        setting: setting.clone(),
        before: old.get(setting).cloned().unwrap_or_default(),
        after: new.get(setting).cloned().unwrap_or_default(),
    };
    settings.into_iter().map(change).filter(|change| change.before != change.after).collect()
}

/// All settings, by their names.
fn leaves(tree: &Value) -> BTreeMap<String, Value> {
    let mut leaves = BTreeMap::new();
    for (name, value) in tree.as_object().into_iter().flatten() {
        match value {
            Value::Object(_) => {
                leaves.extend(
                    self::leaves(value).into_iter().map(|(inner, leaf)| (format!("{name}.{inner}"), leaf)),
                );
            }
            leaf => {
                leaves.insert(name.clone(), leaf.clone());
            }
        }
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        toml::from_str(text).unwrap()
    }

    fn said(changes: &[Change]) -> Vec<String> {
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_can_hold_at_once_does_and_the_rest_waits() {
        let live = Live::new(settings("[tenant]\nqueue = 7\n[sandbox]\nsandboxes = 10"));
        let text = "stop_timeout = \"5s\"\n[tenant]\nqueue = 8\ncalls_per_second = 3\n[sandbox]\nsandboxes = 20\n\
                    memory = \"1MiB\"\n[egress]\nallow = [\"10.0.0.0/8\"]\n[limits]\nmemory = 65536\nqueue = 5";
        for _ in 0..2 {
            let reloaded = live.reload(&settings(text)).unwrap();
            let later = [
                "egress.allow: [] -> [\"10.0.0.0/8\"]",
                "limits.memory: 1073741824 -> 65536",
                "sandbox.memory: null -> 1048576",
                "sandbox.sandboxes: 10 -> 20",
            ];
            assert_eq!(said(&reloaded.later), later, "each time, until the next start");
            let now = live.now();
            assert_eq!((now.tenant.queue, now.limits.queue), (8, 5));
            assert_eq!(now.tenant.calls_per_second.map(u32::from), Some(3));
            assert_eq!(now.stop_timeout.as_secs(), 5);
            assert_eq!((now.sandbox.sandboxes.get(), now.sandbox.memory), (10, None));
            assert!(now.egress.allow.is_empty());
        }
        let back = live.reload(&settings("[sandbox]\nsandboxes = 10")).unwrap();
        let now = [
            "limits.queue: 5 -> 10000",
            "stop_timeout: \"5s\" -> \"30s\"",
            "tenant.calls_per_second: 3 -> null",
            "tenant.queue: 8 -> 256",
        ];
        assert_eq!((said(&back.now), said(&back.later)), (now.map(str::to_owned).to_vec(), vec![]));
        assert_eq!(live.now().tenant, Settings::default().tenant);
    }

    #[test]
    fn what_is_not_allowed_changes_nothing() {
        let live = Live::new(Settings::default());
        let refusal = live.reload(&settings("stop_timeout = \"1s\"\n[tenant]\nweight = 0")).unwrap_err();
        assert!(refusal.contains("tenant.weight is 0"), "{refusal}");
        assert_eq!(live.now().stop_timeout, Settings::default().stop_timeout);
    }

    #[test]
    fn every_setting_that_is_live_is_there() {
        let all = leaves(&serde_json::to_value(Settings::default()).unwrap());
        for live in LIVE {
            let is_there = |name: &String| name == live || live.ends_with('.') && name.starts_with(live);
            assert!(all.keys().any(is_there), "{live}");
        }
    }
}
