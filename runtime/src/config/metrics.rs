//! What metrics tell tenants and functions apart.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::span;

/// How many have labels of their own in metrics. All others are counted together.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Tenants: those with the most calls.
    pub tenants: usize,
    /// Functions of each of them: those with the most calls.
    pub functions_per_tenant: usize,
    /// How long a function that is deleted is still shown, if no other needs its place.
    #[serde(with = "span")]
    pub keep: Duration,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { tenants: 100, functions_per_tenant: 10, keep: Duration::from_secs(15 * 60) }
    }
}
