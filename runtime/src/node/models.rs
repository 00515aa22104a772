//! Changes to models: uploaded, configured, removed.

use std::sync::Arc;

use weir_gpu::{Format, ModelBytes};

use super::Node;
use crate::audit::Actor;
use crate::http::precondition::{Precondition, Tag};
use crate::http::problem::{Code, Problem};
use crate::model::{Model, ModelConfig, ModelRecord};
use crate::name::Name;
use crate::preparation::For;
use crate::store::{Kept, Received};

impl Node {
    /// Examines a model, and keeps it under a name, in place of the one before, whose configuration it gets.
    ///
    /// # Errors
    /// What the engine has against the model; nothing has changed then.
    pub async fn put_model(
        &self,
        tenant: &Name,
        name: &Name,
        format: Format,
        upload: Received,
        by: &Actor,
        condition: &Precondition,
    ) -> Result<(Arc<Model>, Tag), Problem> {
        condition.check(self.kept_model(tenant, name).await?.as_ref())?;
        let bytes = ModelBytes::File(upload.path());
        self.room_for_model(tenant, name, &upload)?;
        let report = self.preparer.examine(For::Upload, format, &bytes, None).await?;
        let _change = self.change_by(by).await?;
        condition.check(self.kept_model(tenant, name).await?.as_ref())?;
        // Others may have come while it was examined.
        self.room_for_model(tenant, name, &upload)?;
        let before = self.models.own(tenant, name);
        let mut record = ModelRecord::new(tenant, name, format, &upload.digest, upload.bytes, &report);
        if let Some(before) = &before {
            record.config = before.record.config.clone();
        }
        let model = Model::new(record, &self.store, &self.settings())?;
        let version = match self.keep(upload, &model.record, by).await {
            Ok(version) => version,
            Err(problem) => {
                self.forget(&model.record.digest);
                return Err(problem);
            }
        };
        let tag = Tag::from(&Kept { record: model.record.clone(), version });
        let model = Arc::new(model);
        self.models.put(Arc::clone(&model));
        if let Some(before) = before {
            self.settle_graph(&before);
            self.forget(&before.record.digest);
        }
        Ok((model, tag))
    }

    /// A tenant's own model, as it is kept.
    ///
    /// # Errors
    /// When the disk cannot give it.
    pub async fn kept_model(&self, tenant: &str, name: &str) -> Result<Option<Kept<ModelRecord>>, Problem> {
        Ok(self.model_index.get(tenant, name).await?)
    }

    /// Has a model held and run in another way, from its next lease on; how its graph is kept, from now on.
    ///
    /// # Errors
    /// When there is none, or for a value that is not allowed, with the field's name; nothing has changed then.
    pub async fn configure_model(
        &self,
        tenant: &Name,
        name: &Name,
        config: ModelConfig,
        by: &Actor,
        condition: &Precondition,
    ) -> Result<(Arc<Model>, Tag), Problem> {
        config.check(&self.settings()).map_err(|reason| Problem::new(Code::InvalidConfig, reason))?;
        let _change = self.change_by(by).await?;
        let before = self.models.own(tenant, name).ok_or_else(|| Problem::no_model(name))?;
        condition.check(self.kept_model(tenant, name).await?.as_ref())?;
        match config.is_public() {
            true => self.may_be_public(tenant, name)?,
            false => self.nobody_uses(&before, |function| function != &**tenant)?,
        }
        let record = ModelRecord { config, ..before.record.clone() };
        let model = Model::new(record, &self.store, &self.settings())?;
        let version = self.write(&model.record, by).await?;
        let tag = Tag::from(&Kept { record: model.record.clone(), version });
        let model = Arc::new(model);
        self.models.put(Arc::clone(&model));
        self.service.keep(tenant, &model.source, &model.source.policy);
        if !model.shares_graph(&before) {
            self.settle_graph(&before);
        }
        Ok((model, tag))
    }

    /// Two public models of one name could not be told apart.
    fn may_be_public(&self, tenant: &Name, name: &Name) -> Result<(), Problem> {
        match self.models.public(name) {
            Some(other) if other.record.tenant != **tenant => Err(Problem::new(
                Code::InvalidConfig,
                format!("visibility: another tenant has a public model `{name}`; use another name"),
            )),
            _ => Ok(()),
        }
    }

    /// Removes a model.
    ///
    /// # Errors
    /// When there is none, or when a revision of a function may use it.
    pub async fn delete_model(
        &self,
        tenant: &Name,
        name: &Name,
        by: &Actor,
        condition: &Precondition,
    ) -> Result<(), Problem> {
        let _change = self.change_by(by).await?;
        let model = self.models.own(tenant, name).ok_or_else(|| Problem::no_model(name))?;
        condition.check(self.kept_model(tenant, name).await?.as_ref())?;
        self.nobody_uses(&model, |_| true)?;
        self.erase::<ModelRecord>(tenant, name, by).await?;
        self.models.remove(tenant, name);
        self.settle_graph(&model);
        self.forget(&model.record.digest);
        Ok(())
    }

    /// That no function of these tenants may use the model.
    fn nobody_uses(&self, model: &Model, of: impl Fn(&str) -> bool) -> Result<(), Problem> {
        let ModelRecord { tenant, name, config, .. } = &model.record;
        let means_it =
            |user: &str| user == tenant || config.is_public() && self.models.own(user, name).is_none();
        let user = self.functions.first(|function| {
            let names_it =
                || function.revisions().iter().any(|revision| revision.config.models.contains(name));
            of(&function.tenant) && means_it(&function.tenant) && names_it()
        });
        let Some(user) = user else { return Ok(()) };
        let detail = match *user.tenant == **tenant {
            true => format!("function `{}` may use model `{name}`; delete the function first", user.name),
            false => format!("a function of another tenant may use model `{name}`, which is public"),
        };
        Err(Problem::new(Code::ModelInUse, detail))
    }

    /// What becomes of the graph that a model had: it goes, unless another model has the same one.
    fn settle_graph(&self, model: &Model) {
        let other = self.models.first(|other| other.shares_graph(model));
        let policy = other.map(|other| other.source.policy.clone()).unwrap_or_default();
        self.service.keep(&model.record.tenant, &model.source, &policy);
    }
}
