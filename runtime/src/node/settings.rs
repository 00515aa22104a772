//! The settings that hold, and what a change of them means for what is there.

use std::sync::Arc;

use super::Node;
use crate::audit::{Actor, Changed};
use crate::config::Settings;
use crate::config::live::{Change, Reloaded};
use crate::model::Model;
use crate::policy::Policy;

impl Node {
    /// The settings as they are at this moment.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.now()
    }

    /// Takes over what of these settings can hold at once: for tenants and models that are there, and for what is
    /// deployed, uploaded and connected from now on. So it does the policy.
    ///
    /// # Errors
    /// A sentence that names the setting that is wrong; nothing has changed then.
    pub async fn reload(&self, settings: &Settings, policy: Policy) -> Result<Reloaded, String> {
        let _change = self.changes.lock().await;
        let mut reloaded = self.settings.reload(settings)?;
        let allowed_otherwise = self.set_policy(policy);
        if !allowed_otherwise.is_empty() {
            self.warn_of_all_violations().await;
        }
        reloaded.now.extend(allowed_otherwise);
        let changed = |section: &str| reloaded.now.iter().any(|change| change.setting.starts_with(section));
        if changed("tenant.") {
            for tenant in self.tenants() {
                self.settle_share(&tenant);
            }
            self.check_floors();
        }
        if changed("models.") {
            self.settle_models();
        }
        if changed("metering.") {
            self.meter.reload(&self.settings().metering);
        }
        self.tell(&reloaded.now).await;
        Ok(reloaded)
    }

    async fn warn_of_all_violations(&self) {
        for tenant in self.functions.tenants() {
            for function in self.functions.of(&tenant) {
                match self.record(&function).await {
                    Ok(kept) => self.warn_of_violations(&kept.record),
                    Err(problem) => tracing::error!(%problem, "a function is not held to the policy"),
                }
            }
        }
    }

    /// Tells the audit log which settings have changed.
    async fn tell(&self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        let (by, changed) = (Actor::server("SIGHUP"), changes.iter().map(Changed::from).collect());
        if let Err(error) = self.store.told(&by, changed).await {
            tracing::error!(%error, "what has changed is not in the audit log");
        }
    }

    /// Has models that follow the operator's defaults kept as these are now. Only for who makes a change.
    fn settle_models(&self) {
        for tenant in self.models.tenants() {
            let own = self.models.of(&tenant).into_iter().filter(|model| *model.record.tenant == *tenant);
            for before in own {
                match Model::new(before.record.clone(), &self.store, &self.settings()) {
                    Ok(model) => {
                        self.service.keep(&tenant, &model.source, &model.source.policy);
                        self.models.put(Arc::new(model));
                    }
                    Err(error) => {
                        let name = &before.record.name;
                        tracing::error!(%tenant, name, %error, "a model stays as it was");
                    }
                }
            }
        }
    }
}
