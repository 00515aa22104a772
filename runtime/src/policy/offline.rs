//! A policy's answer without a server: from a component's bytes and a configuration, as a deploy would have them.

use serde_json::Value;

use super::{Asked, Policy, Violation};
use crate::function::FunctionConfig;
use crate::sandbox::engine;

/// All that the policy has against a deploy of `component` with `config` (JSON, as a deploy takes it) by `tenant`. Looks at
/// the bytes' imports only; whether they are valid and can run here is for the deploy.
///
/// # Errors
/// Bytes that are no component, or a configuration that is not understood.
pub fn check(
    policy: &Policy,
    tenant: &str,
    component: &[u8],
    config: Value,
    signed_by: Option<&str>,
) -> Result<Vec<Violation>, String> {
    let config: FunctionConfig =
        serde_json::from_value(config).map_err(|error| format!("the configuration: {error}"))?;
    let imports = engine::imports(component).map_err(|rejection| rejection.to_string())?;
    Ok(policy.violations(tenant, Asked { config: &config, imports: &imports, signed_by }))
}
