//! What is kept about a tenant: what it is called, whether it is active, and what it may have, where that is not the
//! operator's default.
//!
//! What is not set follows the defaults (`[tenant]` in the configuration file), also when these change at a restart.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::config::TenantConfig;
use crate::function::Class;
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShareConfig {
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Whether its keys and functions work.
    #[serde(skip_serializing_if = "TenantState::is_active")]
    pub state: TenantState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_second: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_burst: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_calls: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_queued_calls: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_sandboxes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_functions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_models: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_soft: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_hard: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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

    /// # Errors
    /// A sentence that names the field, what was asked and what is allowed.
    pub fn check(&self, defaults: &TenantConfig) -> Result<(), String> {
        let length = self.display_name.as_ref().map_or(0, |name| name.chars().count());
        if length > Self::LONGEST_NAME {
            return Err(format!("display_name has {length} characters; the most is {}", Self::LONGEST_NAME));
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
            stored_bytes: self.stored_bytes.or(defaults.stored_bytes),
            budget_soft: self.budget_soft.or(defaults.budget_soft),
            budget_hard: self.budget_hard.or(defaults.budget_hard),
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
}
