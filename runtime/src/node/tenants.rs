//! What tenants may have: kept, restored, and told to who holds them to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Node;
use crate::audit::Actor;
use crate::config::TenantConfig;
use crate::http::precondition::{Precondition, Tag};
use crate::http::problem::{Code, Problem};
use crate::name::Name;
use crate::store::{Kept, Record};
use crate::tenant::{ShareConfig, TenantRecord};

/// What came of setting what a tenant may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareOutcome {
    /// There was no such tenant.
    Made,
    Changed,
}

impl Node {
    pub(super) async fn restore_tenants(&self) -> anyhow::Result<()> {
        // One that cannot be read is named in the log, and has the defaults.
        let (records, _) = self.tenant_index.all().await?;
        for record in records {
            self.tenants.insert(record.tenant.as_str().into(), record);
        }
        for tenant in self.tenants() {
            self.settle_share(&tenant);
        }
        self.check_floors();
        Ok(())
    }

    /// Tells what a tenant may have to the devices and to who admits calls.
    pub(super) fn settle_share(&self, tenant: &str) {
        let (share, _) = self.share(tenant);
        self.rates.set(tenant, share.rate());
        self.gates.set(tenant, share.max_concurrent_calls, share.max_queued_calls);
        self.sandboxes.reserve(&tenant.into(), share.reserved_sandboxes);
        self.budgets.set(tenant, share.budget());
        self.service.set_tenant(tenant, (&share).into());
    }

    /// What a tenant may have, and what of that was set for it.
    pub fn share(&self, tenant: &str) -> (TenantConfig, ShareConfig) {
        let set = self.tenants.get(tenant).map(|record| record.share.clone()).unwrap_or_default();
        (set.over(&self.settings().tenant), set)
    }

    /// All tenants that are known: they have something, or something is kept about them.
    pub fn tenants(&self) -> BTreeSet<Arc<str>> {
        let kept = self.tenants.iter().map(|record| Arc::clone(record.key()));
        let have = self.functions.tenants().into_iter().chain(self.models.tenants());
        let dev = self.access.dev_tenant().map(|tenant| (&**tenant).into());
        kept.chain(have).chain(dev).collect()
    }

    /// Whether there is a tenant of this name.
    pub fn has_tenant(&self, tenant: &str) -> bool {
        self.tenants.contains_key(tenant) || self.access.dev_tenant().is_some_and(|dev| **dev == *tenant)
    }

    /// Whether a tenant's keys and functions work.
    pub fn is_active(&self, tenant: &str) -> bool {
        self.tenants.get(tenant).is_none_or(|record| record.share.state.is_active())
    }

    /// Sets what a tenant may have, in place of what was set before, from now on.
    ///
    /// # Errors
    /// For a value that is not allowed, with the field's name; nothing has changed then.
    pub async fn set_share(
        &self,
        tenant: &Name,
        share: ShareConfig,
        by: &Actor,
        condition: &Precondition,
    ) -> Result<(ShareOutcome, Tag), Problem> {
        let refused = |reason| Problem::new(Code::InvalidConfig, reason);
        share.check(&self.settings().tenant).map_err(refused)?;
        let _change = self.change_by(by).await?;
        condition.check(self.kept_tenant(tenant).await?.as_ref())?;
        let (floor, had) = (share.over(&self.settings().tenant).reserved_sandboxes, self.share(tenant).0);
        if floor > had.reserved_sandboxes || !self.tenants().contains(&**tenant) {
            self.floors_fit(tenant, floor).map_err(refused)?;
        }
        let outcome = match self.has_tenant(tenant) {
            true => ShareOutcome::Changed,
            false => ShareOutcome::Made,
        };
        let mut record = match self.tenants.get(&**tenant) {
            Some(record) => record.clone(),
            None => TenantRecord { tenant: tenant.to_string(), share: ShareConfig::default() },
        };
        record.share = share;
        let version = self.write(&record, by).await?;
        let kept = Kept { record, version };
        let tag = Tag::from(&kept);
        self.tenants.insert((&**tenant).into(), kept.record);
        self.settle_share(tenant);
        self.look_at_budgets().await;
        Ok((outcome, tag))
    }

    /// What is kept about a tenant, if anything is.
    ///
    /// # Errors
    /// When the disk cannot give it.
    pub async fn kept_tenant(&self, tenant: &str) -> Result<Option<Kept<TenantRecord>>, Problem> {
        let record = TenantRecord { tenant: tenant.to_owned(), share: ShareConfig::default() };
        Ok(self.tenant_index.get(tenant, record.name()).await?)
    }
}
