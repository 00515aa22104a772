//! The settings that hold, and what a change of them means for what is there.

use std::sync::Arc;

use super::Node;
use crate::config::Settings;
use crate::config::live::Reloaded;
use crate::model::Model;

impl Node {
    /// The settings as they are at this moment.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.now()
    }

    /// Takes over what of these settings can hold at once: for tenants and models that are there, and for what is
    /// deployed, uploaded and connected from now on.
    ///
    /// # Errors
    /// A sentence that names the setting that is wrong; nothing has changed then.
    pub async fn reload(&self, settings: &Settings) -> Result<Reloaded, String> {
        let _change = self.changes.lock().await;
        let reloaded = self.settings.reload(settings)?;
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
        Ok(reloaded)
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
