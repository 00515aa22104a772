//! What the operator's policy says to a deploy, and who has signed it.

use std::sync::{Arc, PoisonError};

use super::Node;
use crate::config::live::Change;
use crate::function::{FunctionConfig, FunctionRecord};
use crate::http::problem::{Code, Problem};
use crate::name::Name;
use crate::policy::{Asked, Policy};
use crate::signature::Signature;

impl Node {
    /// The name of the tenant's key that made a signature of a component. A signature by none of them is refused also where
    /// none is asked for: who sends one wants it to count.
    pub(super) fn signer(
        &self,
        tenant: &Name,
        digest: &str,
        signature: Option<&Signature>,
    ) -> Result<Option<String>, Problem> {
        let Some(signature) = signature else { return Ok(None) };
        let (_, set) = self.share(tenant);
        let signer = set.signing_keys.iter().find(|key| key.public_key.verifies(signature, digest));
        let signer = signer.ok_or_else(|| {
            let names: Vec<&str> = set.signing_keys.iter().map(|key| key.name.as_str()).collect();
            let keys = match names.as_slice() {
                [] => "the tenant has no keys to sign with".to_owned(),
                names => format!("the tenant's keys are {}", names.join(", ")),
            };
            let detail = format!("no key of the tenant made this signature of sha256:{digest}; {keys}");
            Problem::new(Code::InvalidSignature, detail)
        })?;
        Ok(Some(signer.name.clone()))
    }

    /// # Errors
    /// A problem with all that the policy has against it.
    pub(super) fn allowed(
        &self,
        tenant: &Name,
        config: &FunctionConfig,
        imports: &[String],
        signed_by: Option<&str>,
    ) -> Result<(), Problem> {
        let violations = self.policy().violations(tenant, Asked { config, imports, signed_by });
        if violations.is_empty() { Ok(()) } else { Err(Problem::policy(violations)) }
    }

    fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has deploys held to this policy from now on; what is otherwise in it.
    pub(super) fn set_policy(&self, policy: Policy) -> Vec<Change> {
        let changes = self.policy().changes(&policy);
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
        changes
    }

    /// Names in the log what is deployed and would not be allowed now. It goes on.
    pub(super) fn warn_of_violations(&self, record: &FunctionRecord) {
        let policy = self.policy();
        for revision in &record.revisions {
            let asked = Asked {
                config: &revision.config,
                imports: &revision.imports,
                signed_by: revision.signed_by.as_deref(),
            };
            let found = policy.violations(&record.tenant, asked);
            if !found.is_empty() {
                let violations: Vec<String> = found.iter().map(ToString::to_string).collect();
                let (tenant, function, revision) = (&record.tenant, &record.name, revision.revision);
                tracing::warn!(
                    tenant,
                    function,
                    revision,
                    violations = violations.join("; "),
                    "the policy would not allow this revision now"
                );
            }
        }
    }
}
