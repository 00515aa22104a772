//! `weir policy`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use weir::signature::{self, PublicKey, Signature};

use super::client::Failure;
use super::deploy::Configuration;
use super::{output, sign};

#[derive(Args)]
pub struct Policy {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List all that a policy has against a component and a configuration; 1 if there is something
    Check(Check),
}

#[derive(Args)]
struct Check {
    /// The component (.wasm)
    component: PathBuf,
    /// The policy (TOML)
    #[arg(long, env = "WEIR_POLICY", default_value = "policy.toml", value_name = "FILE")]
    policy: PathBuf,
    /// Whose deploy it would be
    #[arg(long, env = "WEIR_TENANT", default_value = weir::DEV_TENANT)]
    tenant: String,
    /// The component's signature
    #[arg(long, requires = "public_key", value_name = "FILE")]
    signature: Option<PathBuf>,
    /// The tenant's public key (PEM) that the signature is by
    #[arg(long, requires = "signature", value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    configuration: Configuration,
}

impl Policy {
    pub fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::Check(check) => check.run(),
        }
    }
}

impl Check {
    fn run(self) -> Result<(), Failure> {
        let policy =
            weir::policy::Policy::read(&self.policy).map_err(|error| Failure::Usage(format!("{error:#}")))?;
        let component =
            std::fs::read(&self.component).map_err(|error| sign::unreadable(&self.component, &error))?;
        let signed_by = match self.signature.as_ref().zip(self.public_key.as_ref()) {
            Some((signature, key)) => {
                let read = sign::read(signature, Signature::parse)?;
                if !sign::read(key, PublicKey::parse)?.verifies(&read, &signature::digest(&component)) {
                    let [signature, key, of] = [signature, key, &self.component].map(|file| file.display());
                    return Err(Failure::Local(format!("{signature} is no signature of {of} by {key}")));
                }
                Some("the key")
            }
            None => None,
        };
        let config = self.configuration.read()?;
        let tenant = if self.tenant.is_empty() { weir::DEV_TENANT } else { &self.tenant };
        weir::check_tenant_name(tenant).map_err(Failure::Usage)?;
        let violations = weir::policy::check(&policy, tenant, &component, config, signed_by)
            .map_err(|reason| Failure::Local(format!("{}: {reason}", self.component.display())))?;
        if self.json {
            output::json(&json!({ "violations": violations }));
        } else if !violations.is_empty() {
            output::table(
                ["RULE", "ASKED", "ALLOWED"],
                violations.iter().map(|violation| {
                    let allowed = violation.allowed.join(", ");
                    let allowed = if allowed.is_empty() { "nothing".to_owned() } else { allowed };
                    [violation.rule.to_owned(), violation.asked.clone(), allowed]
                }),
            );
        }
        let policy = self.policy.display();
        match violations.len() {
            0 if self.json => Ok(()),
            0 => {
                output::line(format!("{policy} allows it to the tenant {tenant}"));
                Ok(())
            }
            1 => {
                Err(Failure::Local(format!("{policy} does not allow it to the tenant {tenant}: 1 violation")))
            }
            many => Err(Failure::Local(format!(
                "{policy} does not allow it to the tenant {tenant}: {many} violations"
            ))),
        }
    }
}
