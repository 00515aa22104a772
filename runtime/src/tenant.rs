//! What is kept about a tenant: what it is called, whether it is active, and what it may have, where that is not the
//! operator's default.
//!
//! What is not set follows the defaults (`[tenant]` in the configuration file), also when these change at a restart.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::TenantConfig;
use crate::function::Class;
use crate::meter::money::Amount;
use crate::name::Name;
use crate::signature::NamedKey;
use crate::store::Record;
use crate::units::Size;

/// A tenant as it is kept. A tenant without a record has the defaults.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TenantRecord {
    pub tenant: String,
    #[serde(default)]
    pub share: ShareConfig,
}

impl Record for TenantRecord {
    const KIND: &'static str = "tenants";

    fn tenant(&self) -> &str {
        &self.tenant
    }

    /// There is one for each tenant.
    fn name(&self) -> &'static str {
        "tenant"
    }
}

/// What a tenant may have. What is absent is the operator's default; unknown names are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShareConfig {
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub display_name: Option<String>,
    /// Whether its keys and functions work.
    #[serde(skip_serializing_if = "TenantState::is_active")]
    pub state: TenantState,
    /// Its part of the devices' time, against that of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: Option<u32>,
    /// The most urgent class that its inferences may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The most of its inferences that may wait for a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<usize>,
    /// Calls of its functions in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_second: Option<NonZeroU32>,
    /// Calls at once after a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_burst: Option<NonZeroU32>,
    /// The most memory that its models and jobs may have of a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<Size>,
    /// The same of the GPU's memory; as `device_memory` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<Size>,
    /// Calls of its functions that may run at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_calls: Option<NonZeroU32>,
    /// Calls of its functions that may wait for their turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_queued_calls: Option<u32>,
    /// Sandboxes that are kept for it, however many others have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_sandboxes: Option<u32>,
    /// Functions that it may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_functions: Option<u32>,
    /// Models that it may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_models: Option<u32>,
    /// Keys that it may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_keys: Option<u32>,
    /// Bytes that its components and models may have, the same bytes counted once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<Size>,
    /// What it may spend in a month before the operator is told, in milliseconds of the devices' time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_soft: Option<u64>,
    /// What it may spend in a month, in milliseconds of the devices' time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_hard: Option<u64>,
    /// What it may spend in a month before the operator is told, in the currency of its rate card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spend_soft: Option<Amount>,
    /// What it may spend in a month, in the currency of its rate card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spend_hard: Option<Amount>,
    /// Who may sign its components.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub signing_keys: Vec<NamedKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TenantState {
    #[default]
    Active,
    /// Nothing of it is lost, and nothing of it is served.
    Suspended,
}

impl TenantState {
    pub fn is_active(&self) -> bool {
        *self == Self::Active
    }
}

impl ShareConfig {
    /// The longest name for people.
    const LONGEST_NAME: usize = 200;

    /// The most keys to sign with: all may be tried for one signature.
    const SIGNING_KEYS: usize = 16;

    /// # Errors
    /// A sentence that names the field, what was asked and what is allowed.
    pub fn check(&self, defaults: &TenantConfig) -> Result<(), String> {
        let length = self.display_name.as_ref().map_or(0, |name| name.chars().count());
        if length > Self::LONGEST_NAME {
            return Err(format!("display_name has {length} characters; the most is {}", Self::LONGEST_NAME));
        }
        let keys = &self.signing_keys;
        if keys.len() > Self::SIGNING_KEYS {
            return Err(format!("signing_keys has {} keys; the most is {}", keys.len(), Self::SIGNING_KEYS));
        }
        for (index, NamedKey { name, .. }) in keys.iter().enumerate() {
            if Name::function(name).is_err() {
                let shown: String = name.chars().take(80).collect();
                let shown = shown.escape_default();
                return Err(format!(
                    "signing_keys: `{shown}` is no name of a key; use one as functions have"
                ));
            }
            if keys.iter().skip(index + 1).any(|other| other.name == *name) {
                return Err(format!("signing_keys: `{name}` is there twice"));
            }
        }
        self.over(defaults).check()
    }

    /// With the defaults where nothing is set.
    pub fn over(&self, defaults: &TenantConfig) -> TenantConfig {
        TenantConfig {
            weight: self.weight.unwrap_or(defaults.weight),
            class: self.class.unwrap_or(defaults.class),
            queue: self.queue.unwrap_or(defaults.queue),
            calls_per_second: self.calls_per_second.or(defaults.calls_per_second),
            call_burst: self.call_burst.or(defaults.call_burst),
            device_memory: self.device_memory.or(defaults.device_memory),
            gpu_memory: self.gpu_memory.or(defaults.gpu_memory),
            max_concurrent_calls: self.max_concurrent_calls.or(defaults.max_concurrent_calls),
            max_queued_calls: self.max_queued_calls.or(defaults.max_queued_calls),
            reserved_sandboxes: self.reserved_sandboxes.unwrap_or(defaults.reserved_sandboxes),
            max_functions: self.max_functions.or(defaults.max_functions),
            max_models: self.max_models.or(defaults.max_models),
            max_keys: self.max_keys.unwrap_or(defaults.max_keys),
            stored_bytes: self.stored_bytes.or(defaults.stored_bytes),
            budget_soft: self.budget_soft.or(defaults.budget_soft),
            budget_hard: self.budget_hard.or(defaults.budget_hard),
            spend_soft: self.spend_soft.as_ref().or(defaults.spend_soft.as_ref()).cloned(),
            spend_hard: self.spend_hard.as_ref().or(defaults.spend_hard.as_ref()).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_is_the_default() {
        let defaults =
            TenantConfig { queue: 7, device_memory: Some(Size::mib(1)), ..TenantConfig::default() };
        let share: ShareConfig = serde_json::from_str(r#"{"weight": 3, "class": "batch"}"#).unwrap();
        let over = share.over(&defaults);
        assert_eq!((over.weight, over.class, over.queue), (3, Class::Batch, 7));
        assert_eq!(over.device_memory, Some(Size::mib(1)));
        assert_eq!(serde_json::to_string(&share).unwrap(), r#"{"weight":3,"class":"batch"}"#);
        let unknown = serde_json::from_str::<ShareConfig>(r#"{"wait": 3}"#).unwrap_err().to_string();
        assert!(unknown.contains("`wait`"), "{unknown}");
    }

    #[test]
    fn a_weight_is_within_bounds() {
        let weight = |weight| {
            let share = ShareConfig { weight: Some(weight), ..ShareConfig::default() };
            share.check(&TenantConfig::default())
        };
        assert!(weight(1).is_ok() && weight(1000).is_ok());
        assert_eq!(weight(0).unwrap_err(), "weight is 0; it must be 1 to 1000");
        assert_eq!(weight(1001).unwrap_err(), "weight is 1001; it must be 1 to 1000");
    }

    #[test]
    fn keys_to_sign_with_have_names_of_their_own() {
        const KEY: &str = "MCowBQYDK2VwAyEAhvmhUUF7g/RjddLbDgqnmqPwBlQZWRRL4XvH4XAWlRA=";
        let checked = |names: &[&str]| {
            let keys: Vec<_> =
                names.iter().map(|name| serde_json::json!({ "name": name, "public_key": KEY })).collect();
            let share: ShareConfig =
                serde_json::from_value(serde_json::json!({ "signing_keys": keys })).unwrap();
            share.check(&TenantConfig::default())
        };
        assert!(checked(&["release", "ci"]).is_ok());
        assert!(checked(&["a", "b", "a"]).unwrap_err().contains("`a` is there twice"));
        assert!(checked(&["A key"]).unwrap_err().contains("`A key` is no name of a key"));
        let many: Vec<String> = (0..17).map(|number| format!("k{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(checked(&many[..16]).is_ok());
        assert!(checked(&many).unwrap_err().contains("has 17 keys; the most is 16"));
        let wrong = r#"{"signing_keys": [{"name": "a", "public_key": "AAAA"}]}"#;
        let wrong = serde_json::from_str::<ShareConfig>(wrong).unwrap_err().to_string();
        assert!(wrong.contains("no public key of Ed25519"), "{wrong}");
    }
}
