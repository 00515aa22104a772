//! The tenants' models: uploaded bytes with a name and a signature.

use std::sync::Arc;

use dashmap::DashMap;
use serde::{Deserialize, Serialize};
use weir_gpu::{Dim, Format, ModelSource, Signature, TensorSpec};

use crate::name::Name;
use crate::store::{Record, Store};

/// A model as it is kept and shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelRecord {
    pub tenant: String,
    pub name: String,
    pub format: String,
    /// SHA-256 of the bytes.
    pub digest: String,
    pub bytes: u64,
    pub inputs: Vec<SpecRecord>,
    pub outputs: Vec<SpecRecord>,
    /// RFC 3339.
    pub created: String,
}

/// One input or output. `shape` has an integer for a fixed axis and a string for one that may vary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecRecord {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<AxisRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AxisRecord {
    Fixed(usize),
    Varying(String),
}

impl Record for ModelRecord {
    const FOLDER: &'static str = "models";

    fn tenant(&self) -> &str {
        &self.tenant
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl From<&TensorSpec> for SpecRecord {
    fn from(spec: &TensorSpec) -> Self {
        let axis = |dim: &Dim| match dim {
            Dim::Fixed(size) => AxisRecord::Fixed(*size),
            Dim::Symbol(text) | Dim::Computed(text) => AxisRecord::Varying(text.clone()),
        };
        Self {
            name: spec.name.clone(),
            dtype: spec.dtype.to_string(),
            shape: spec.shape.iter().map(axis).collect(),
        }
    }
}

impl ModelRecord {
    pub fn new(
        tenant: &Name,
        name: &Name,
        format: Format,
        digest: &str,
        bytes: u64,
        signature: &Signature,
    ) -> Self {
        Self {
            tenant: tenant.to_string(),
            name: name.to_string(),
            format: format.name().to_owned(),
            digest: digest.to_owned(),
            bytes,
            inputs: signature.inputs.iter().map(SpecRecord::from).collect(),
            outputs: signature.outputs.iter().map(SpecRecord::from).collect(),
            created: crate::now(),
        }
    }
}

/// A model that can be opened.
#[derive(Debug)]
pub struct Model {
    pub record: ModelRecord,
    pub source: ModelSource,
}

impl Model {
    /// # Errors
    /// For a record whose format this version does not know.
    pub fn new(record: ModelRecord, store: &Store) -> Result<Self, weir_gpu::Error> {
        let path = store.blobs.path(&record.digest);
        let source = ModelSource::from_file(&record.digest, record.format.parse()?, path);
        Ok(Self { record, source })
    }
}

/// All tenants' models, by tenant and name.
#[derive(Default)]
pub struct Models(DashMap<(Arc<str>, Arc<str>), Arc<Model>>);

impl Models {
    pub fn find(&self, tenant: &Arc<str>, name: &str) -> Option<Arc<Model>> {
        self.0.get(&(Arc::clone(tenant), Arc::from(name))).map(|model| Arc::clone(&model))
    }

    pub fn put(&self, model: Model) -> Arc<Model> {
        let key = (Arc::from(model.record.tenant.as_str()), Arc::from(model.record.name.as_str()));
        let model = Arc::new(model);
        self.0.insert(key, Arc::clone(&model));
        model
    }

    pub fn remove(&self, tenant: &Arc<str>, name: &str) {
        self.0.remove(&(Arc::clone(tenant), Arc::from(name)));
    }

    /// A tenant's models, by name.
    pub fn of(&self, tenant: &str) -> Vec<Arc<Model>> {
        let theirs = self.0.iter().filter(|model| &*model.key().0 == tenant);
        let mut models: Vec<_> = theirs.map(|model| Arc::clone(&model)).collect();
        models.sort_by(|a, b| a.record.name.cmp(&b.record.name));
        models
    }

    /// Whether any model has these bytes.
    pub fn uses(&self, digest: &str) -> bool {
        self.0.iter().any(|model| model.record.digest == digest)
    }
}
