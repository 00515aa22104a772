//! How the devices are shared: what tenants may have, whose turn it is, and how long graphs stay in memory.

use std::num::NonZeroU32;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::function::Class;
use crate::meter::money::Amount;
use crate::meter::money::budget::{Bounds, Budget};
use crate::rates::Rate;
use crate::units::{Size, span};

/// What a tenant may have, unless it is told otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TenantConfig {
    /// Its part of the devices' time, against that of others.
    pub weight: u32,
    /// The most urgent class that its functions may ask for, and its inferences have.
    pub class: Class,
    /// The most of its inferences that may wait for a device.
    pub queue: usize,
    /// Calls of its functions in a second; as many as come when absent.
    pub calls_per_second: Option<NonZeroU32>,
    /// Calls at once after a pause; as many as in a second when absent.
    pub call_burst: Option<NonZeroU32>,
    /// The most memory that its models and jobs may have of a device; the device's own size when absent.
    pub device_memory: Option<Size>,
    /// The same of the GPU's memory; as `device_memory` when absent.
    pub gpu_memory: Option<Size>,
    /// Calls of its functions that may run at one time; as many as the functions let when absent.
    pub max_concurrent_calls: Option<NonZeroU32>,
    /// Calls of its functions that may wait for their turn; as many as the functions let when absent.
    pub max_queued_calls: Option<u32>,
    /// Sandboxes that are kept for it, however many others have.
    pub reserved_sandboxes: u32,
    /// Functions that it may have; any number when absent.
    pub max_functions: Option<u32>,
    /// Models that it may have; any number when absent.
    pub max_models: Option<u32>,
    /// Keys that it may have, those that have ended but are still listed included.
    pub max_keys: u32,
    /// Bytes that its components and models may have, the same bytes counted once; any number when absent.
    pub stored_bytes: Option<Size>,
    /// What it may spend in a month before the operator is told, in milliseconds of the devices' time.
    pub budget_soft: Option<u64>,
    /// What it may spend in a month, in milliseconds of the devices' time.
    pub budget_hard: Option<u64>,
    /// What it may spend in a month before the operator is told, in the currency of its rate card.
    pub spend_soft: Option<Amount>,
    /// What it may spend in a month, in the currency of its rate card.
    pub spend_hard: Option<Amount>,
}

impl Default for TenantConfig {
    fn default() -> Self {
        let weir_gpu::TenantShare { weight, queue, .. } = weir_gpu::TenantShare::default();
        Self {
            weight,
            class: Class::Critical,
            queue,
            calls_per_second: None,
            call_burst: None,
            device_memory: None,
            gpu_memory: None,
            max_concurrent_calls: None,
            max_queued_calls: None,
            reserved_sandboxes: 0,
            max_functions: None,
            max_models: None,
            max_keys: 1000,
            stored_bytes: None,
            budget_soft: None,
            budget_hard: None,
            spend_soft: None,
            spend_hard: None,
        }
    }
}

impl TenantConfig {
    /// The smallest and the largest weight of a tenant.
    pub const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=1000;

    /// # Errors
    /// A sentence that names the field, what was asked and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        if !Self::WEIGHTS.contains(&self.weight) {
            let (least, most) = Self::WEIGHTS.into_inner();
            return Err(format!("weight is {}; it must be {least} to {most}", self.weight));
        }
        if let (Some(soft), Some(hard)) = (self.budget_soft, self.budget_hard)
            && soft > hard
        {
            return Err(format!("budget_soft is {soft}; budget_hard, {hard}, would come before it"));
        }
        if let (Some(soft), Some(hard)) = (&self.spend_soft, &self.spend_hard)
            && soft > hard
        {
            return Err(format!("spend_soft is {soft}; spend_hard, {hard}, would come before it"));
        }
        Ok(())
    }
}

impl TenantConfig {
    /// How often its functions may be called, if there is a bound.
    pub fn rate(&self) -> Option<Rate> {
        Rate::new(self.calls_per_second, self.call_burst)
    }

    /// What it may spend in a month.
    pub fn budget(&self) -> Budget {
        Budget {
            soft: Bounds { device_ms: self.budget_soft, money: self.spend_soft.clone() },
            hard: Bounds { device_ms: self.budget_hard, money: self.spend_hard.clone() },
        }
    }
}

impl From<&TenantConfig> for weir_gpu::TenantShare {
    fn from(tenant: &TenantConfig) -> Self {
        let TenantConfig { weight, class, queue, device_memory, gpu_memory, .. } = *tenant;
        Self {
            weight,
            class: class.into(),
            queue,
            memory: device_memory.map(Size::as_u64),
            gpu_memory: gpu_memory.or(device_memory).map(Size::as_u64),
        }
    }
}

/// How the devices are shared.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulingConfig {
    /// How much more device time than its share a tenant may have had before a job of it makes way.
    #[serde(with = "span")]
    pub quantum: Duration,
    /// In this time the debt of a tenant that asks for nothing halves.
    #[serde(with = "span")]
    pub half_life: Duration,
    /// Percent of a device's time that standard jobs get, if they want it, whatever the critical ones want.
    pub standard_share: u16,
    /// Percent of a device's time that batch jobs get, if they want it, whatever the others want.
    pub batch_share: u16,
    /// The most jobs that may have begun and wait to go on. Each holds a thread and its memory.
    pub suspended: usize,
    /// Which idle graphs make room for others.
    pub eviction: Eviction,
}

/// Which idle graph makes room: the one that is worth the least, or the one that has been idle for longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Eviction {
    #[default]
    Cost,
    Lru,
}

impl From<Eviction> for weir_gpu::Eviction {
    fn from(eviction: Eviction) -> Self {
        match eviction {
            Eviction::Cost => Self::Cost,
            Eviction::Lru => Self::Lru,
        }
    }
}

/// Thousandths, in which shares are kept, of a percent.
const THOUSANDTHS: u16 = 10;

impl Default for SchedulingConfig {
    fn default() -> Self {
        let sharing = weir_gpu::Sharing::default();
        Self {
            quantum: sharing.quantum,
            half_life: sharing.half_life,
            standard_share: sharing.standard_share / THOUSANDTHS,
            batch_share: sharing.batch_share / THOUSANDTHS,
            suspended: sharing.suspended,
            eviction: Eviction::default(),
        }
    }
}

impl SchedulingConfig {
    /// # Errors
    /// A sentence that names the setting, what was asked and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        for (field, span) in [("quantum", self.quantum), ("half_life", self.half_life)] {
            if span.is_zero() {
                return Err(format!("scheduling.{field} must be longer than nothing"));
            }
        }
        let (standard, batch) = (self.standard_share, self.batch_share);
        if standard.saturating_add(batch) > 100 {
            return Err(format!(
                "scheduling.standard_share is {standard} and scheduling.batch_share {batch}; together they may be 100 \
                 percent at most"
            ));
        }
        Ok(())
    }
}

impl From<&SchedulingConfig> for weir_gpu::Sharing {
    fn from(scheduling: &SchedulingConfig) -> Self {
        Self {
            quantum: scheduling.quantum,
            half_life: scheduling.half_life,
            standard_share: scheduling.standard_share.saturating_mul(THOUSANDTHS),
            batch_share: scheduling.batch_share.saturating_mul(THOUSANDTHS),
            suspended: scheduling.suspended,
        }
    }
}

/// What models have, unless they are told otherwise.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelsConfig {
    /// How long a graph stays in memory after the last sandbox that held it.
    #[serde(with = "span")]
    pub keep_alive: Duration,
    /// How long a model stays in host memory after its last move to a GPU.
    #[serde(with = "span")]
    pub host_keep_alive: Duration,
}

impl Default for ModelsConfig {
    fn default() -> Self {
        Self { keep_alive: Duration::from_secs(60), host_keep_alive: Duration::from_secs(600) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_of_scheduling_reaches_the_devices() {
        let text = "[scheduling]\nquantum = \"5ms\"\nhalf_life = \"1s\"\nstandard_share = 30\nbatch_share = 20\n\
                    suspended = 7\neviction = \"lru\"\n[tenant]\nweight = 3\nclass = \"batch\"\nqueue = 9\n\
                    device_memory = \"1MiB\"\ngpu_memory = \"2MiB\"";
        let settings: crate::config::Settings = toml::from_str(text).unwrap();
        let sharing = weir_gpu::Sharing {
            quantum: Duration::from_millis(5),
            half_life: Duration::from_secs(1),
            standard_share: 300,
            batch_share: 200,
            suspended: 7,
        };
        assert_eq!(weir_gpu::Sharing::from(&settings.scheduling), sharing);
        assert_eq!(weir_gpu::Eviction::from(settings.scheduling.eviction), weir_gpu::Eviction::Lru);
        let share = weir_gpu::TenantShare {
            weight: 3,
            class: weir_gpu::Class::Batch,
            queue: 9,
            memory: Some(1 << 20),
            gpu_memory: Some(2 << 20),
        };
        assert_eq!(weir_gpu::TenantShare::from(&settings.tenant), share);
        let one = TenantConfig { gpu_memory: None, ..settings.tenant };
        assert_eq!(weir_gpu::TenantShare::from(&one).gpu_memory, Some(1 << 20));
    }
}
