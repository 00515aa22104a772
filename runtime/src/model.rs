//! The tenants' models: uploaded bytes with a name and a signature.

use serde::{Deserialize, Serialize};
use weir_gpu::{Dim, Format, ModelSource, Report, TensorSpec};

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
    /// The engine that examined it; another one examines it again before it loads it.
    #[serde(default)]
    pub engine: String,
    /// Bytes that it needs at one time, where axes that vary have one element.
    #[serde(default)]
    pub memory: u64,
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
        report: &Report,
    ) -> Self {
        let signature = &report.signature;
        Self {
            tenant: tenant.to_string(),
            name: name.to_string(),
            format: format.name().to_owned(),
            digest: digest.to_owned(),
            bytes,
            inputs: signature.inputs.iter().map(SpecRecord::from).collect(),
            outputs: signature.outputs.iter().map(SpecRecord::from).collect(),
            engine: weir_gpu::ENGINE.to_owned(),
            memory: report.memory,
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
        let examined = (record.engine == weir_gpu::ENGINE).then_some(record.memory);
        let source = ModelSource::from_file(&record.digest, record.format.parse()?, path, examined);
        Ok(Self { record, source })
    }
}
