//! The tenants' models: uploaded bytes with a name, a signature, and a configuration of how they are held and run.
//!
//! A tenant finds its own models, and the public ones of others under names that it has no model of its own for.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_gpu::{Batching, Dim, Format, Keep, ModelPolicy, ModelSource, Report, TensorSpec};

use crate::catalog::Catalog;
use crate::config::Settings;
use crate::function::{at_most, span_at_most};
use crate::name::Name;
use crate::schema::SpanText;
use crate::store::{Record, Store};
use crate::units::span;

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
    #[serde(default)]
    pub config: ModelConfig,
    /// RFC 3339.
    pub created: String,
}

/// How a model is held in memory and run. Every value has a default; unknown names are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// How long its graph stays in memory after the last sandbox that held it; the operator's value when absent.
    #[serde(with = "span::optional")]
    #[schemars(with = "Option<SpanText>")]
    pub keep_alive: Option<Duration>,
    /// How long it stays in host memory, read and ready, after its last move to a GPU; the operator's value when absent.
    #[serde(with = "span::optional")]
    #[schemars(with = "Option<SpanText>")]
    pub host_keep_alive: Option<Duration>,
    /// Whether its graph stays for good once it is loaded, and makes room for no other.
    pub pin: bool,
    /// How long its graph is in memory, at least, before it makes room for others.
    #[serde(with = "span")]
    #[schemars(with = "SpanText")]
    pub min_resident: Duration,
    /// The most rows that ride in one batch; 1 for none.
    #[schemars(range(min = 1))]
    pub max_batch: u64,
    /// How long the first inference of a batch may wait for others.
    #[serde(with = "span")]
    #[schemars(with = "SpanText")]
    pub max_queue_delay: Duration,
    /// Numbers of rows that a batch should have, from the least.
    #[schemars(inner(range(min = 1)))]
    pub preferred_batch_sizes: Vec<u64>,
    /// Whether a batch is filled up with rows of zeros to the next preferred number.
    pub padding: bool,
    /// Whose functions find it.
    pub visibility: Visibility,
}

/// Whose functions find a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    /// Its tenant's.
    #[default]
    Private,
    /// Everyone's: one graph serves them all.
    Public,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            keep_alive: None,
            host_keep_alive: None,
            pin: false,
            min_resident: Duration::ZERO,
            max_batch: 1,
            max_queue_delay: Duration::ZERO,
            preferred_batch_sizes: vec![],
            padding: false,
            visibility: Visibility::default(),
        }
    }
}

impl ModelConfig {
    /// Checks the configuration against what the operator allows.
    ///
    /// # Errors
    /// A sentence that names the field, what was asked and what is allowed.
    pub fn check(&self, settings: &Settings) -> Result<(), String> {
        let most = &settings.limits;
        span_at_most("keep_alive", self.keep_alive.unwrap_or_default(), most.keep_alive)?;
        span_at_most("host_keep_alive", self.host_keep_alive.unwrap_or_default(), most.keep_alive)?;
        span_at_most("min_resident", self.min_resident, most.min_resident)?;
        span_at_most("max_queue_delay", self.max_queue_delay, most.max_queue_delay)?;
        at_most("max_batch", self.max_batch, most.max_batch)?;
        if self.max_batch == 0 {
            return Err("max_batch is 0; it must be 1, for no batches, or more".to_owned());
        }
        let sizes = &self.preferred_batch_sizes;
        if let Some(size) = sizes.iter().find(|size| !(1..=self.max_batch).contains(*size)) {
            return Err(format!(
                "preferred_batch_sizes has {size}; each must be 1 to {}, the max_batch",
                self.max_batch
            ));
        }
        if !sizes.is_sorted_by(|before, after| before < after) {
            return Err(format!("preferred_batch_sizes is {sizes:?}; it must ascend, with no number twice"));
        }
        if self.padding && sizes.is_empty() {
            return Err(
                "padding is true, but there are no preferred_batch_sizes to fill batches up to".to_owned()
            );
        }
        Ok(())
    }

    pub fn is_public(&self) -> bool {
        self.visibility == Visibility::Public
    }

    fn policy(&self, settings: &Settings) -> ModelPolicy {
        ModelPolicy {
            public: self.is_public(),
            keep: Keep {
                keep_alive: self.keep_alive.unwrap_or(settings.models.keep_alive),
                pin: self.pin,
                min_resident: self.min_resident,
            },
            host_keep_alive: self.host_keep_alive.unwrap_or(settings.models.host_keep_alive),
            batching: Arc::new(Batching {
                max_batch: self.max_batch,
                max_queue_delay: self.max_queue_delay,
                preferred: self.preferred_batch_sizes.clone(),
                padding: self.padding,
            }),
        }
    }
}

/// One input or output. `shape` has an integer for a fixed axis and a string for one that may vary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpecRecord {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<AxisRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AxisRecord {
    Fixed(usize),
    Varying(String),
}

impl Record for ModelRecord {
    const KIND: &'static str = "models";

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
            config: ModelConfig::default(),
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
    pub fn new(record: ModelRecord, store: &Store, settings: &Settings) -> Result<Self, weir_gpu::Error> {
        let path = store.blobs.path(&record.digest);
        let examined = (record.engine == weir_gpu::ENGINE).then_some(record.memory);
        let source = ModelSource::from_file(&record.digest, record.format.parse()?, path, examined);
        let policy = record.config.policy(settings);
        Ok(Self { record, source: ModelSource { policy, ..source } })
    }

    /// Whether the graphs of both are one and the same in memory.
    pub fn shares_graph(&self, other: &Self) -> bool {
        let public = self.source.policy.public;
        self.source.digest == other.source.digest
            && public == other.source.policy.public
            && (public || self.record.tenant == other.record.tenant)
    }
}

/// All models. Those of a tenant are found by it alone, unless they are public.
#[derive(Default)]
pub struct Models {
    own: Catalog<Model>,
    public: DashMap<Arc<str>, Arc<Model>>,
}

impl Models {
    /// What a tenant means by a name: its own model, or else a public one.
    pub fn find(&self, tenant: &str, name: &str) -> Option<Arc<Model>> {
        self.own(tenant, name).or_else(|| self.public(name))
    }

    /// How many there are, of all tenants.
    pub fn count(&self) -> usize {
        self.own.count()
    }

    pub fn own_of(&self, tenant: &str) -> Vec<Arc<Model>> {
        self.own.of(tenant)
    }

    pub fn own(&self, tenant: &str, name: &str) -> Option<Arc<Model>> {
        self.own.find(tenant, name)
    }

    /// The public model of a name, whoever's it is.
    pub fn public(&self, name: &str) -> Option<Arc<Model>> {
        self.public.get(name).map(|model| Arc::clone(&model))
    }

    /// What a tenant finds: its own models and the public ones that no name of its own hides.
    pub fn of(&self, tenant: &str) -> Vec<Arc<Model>> {
        let mut found = self.own.of(tenant);
        let others = self.public.iter().filter(|model| self.own(tenant, model.key()).is_none());
        found.extend(others.map(|model| Arc::clone(&model)));
        found.sort_by(|one, other| one.record.name.cmp(&other.record.name));
        found
    }

    /// Adds a model, in place of the one of its tenant and name.
    pub fn put(&self, model: Arc<Model>) {
        let ModelRecord { tenant, name, .. } = &model.record;
        match model.record.config.is_public() {
            true => drop(self.public.insert(name.as_str().into(), Arc::clone(&model))),
            false => self.unpublish(tenant, name),
        }
        self.own.put(tenant, name, Arc::clone(&model));
    }

    pub fn remove(&self, tenant: &str, name: &str) {
        self.unpublish(tenant, name);
        self.own.remove(tenant, name);
    }

    fn unpublish(&self, tenant: &str, name: &str) {
        self.public.remove_if(name, |_, model| model.record.tenant == tenant);
    }

    /// Any model that is so.
    pub fn first(&self, is: impl FnMut(&Model) -> bool) -> Option<Arc<Model>> {
        self.own.first(is)
    }

    /// Tenants that have models.
    pub fn tenants(&self) -> Vec<Arc<str>> {
        self.own.tenants()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        match serde_json::from_str::<ModelConfig>(json) {
            Ok(config) => config.check(&Settings::default()).unwrap_err(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn refusals_name_the_field() {
        assert!(refusal(r#"{"keepalive": "1s"}"#).contains("keepalive"));
        assert!(refusal(r#"{"keep_alive": 1}"#).contains("expected a duration with a unit"));
        assert!(refusal(r#"{"visibility": "hidden"}"#).contains("`hidden`"));
        let most = |field: &str, asked: &str, most: &str| {
            let said = refusal(&format!(r#"{{"{field}": "{asked}"}}"#));
            assert_eq!(said, format!("{field} is {asked}; the most here is {most}"));
        };
        most("keep_alive", "2days", "1day");
        most("host_keep_alive", "2days", "1day");
        most("min_resident", "2h", "1h");
        most("max_queue_delay", "2s", "1s");
        assert_eq!(refusal(r#"{"max_batch": 1025}"#), "max_batch is 1025; the most here is 1024");
        assert_eq!(refusal(r#"{"max_batch": 0}"#), "max_batch is 0; it must be 1, for no batches, or more");
        let sizes =
            |sizes: &str| refusal(&format!(r#"{{"max_batch": 8, "preferred_batch_sizes": {sizes}}}"#));
        assert_eq!(sizes("[4, 9]"), "preferred_batch_sizes has 9; each must be 1 to 8, the max_batch");
        assert_eq!(sizes("[0]"), "preferred_batch_sizes has 0; each must be 1 to 8, the max_batch");
        assert!(sizes("[4, 2]").contains("preferred_batch_sizes is [4, 2]; it must ascend"));
        assert!(sizes("[4, 4]").contains("no number twice"));
        assert!(refusal(r#"{"max_batch": 8, "padding": true}"#).contains("no preferred_batch_sizes"));
    }

    #[test]
    fn a_record_from_before_there_were_configurations_has_the_defaults() {
        let old = r#"{"tenant": "t", "name": "m", "format": "onnx", "digest": "d", "bytes": 1, "inputs": [],
                      "outputs": [], "created": ""}"#;
        let record: ModelRecord = serde_json::from_str(old).unwrap();
        assert_eq!(record.config, ModelConfig::default());
        let policy = record.config.policy(&Settings::default());
        assert_eq!(policy.keep.keep_alive, Settings::default().models.keep_alive);
        assert_eq!(policy.host_keep_alive, Settings::default().models.host_keep_alive);
        assert!(!policy.public && !policy.batching.is_on());
    }

    fn model(tenant: &str, digest: &str, visibility: Visibility) -> Arc<Model> {
        let config = ModelConfig { visibility, ..ModelConfig::default() };
        let mut source = ModelSource::from_memory(digest, Format::Onnx, bytes::Bytes::new());
        source.policy = config.policy(&Settings::default());
        let record = ModelRecord {
            tenant: tenant.to_owned(),
            name: "m".to_owned(),
            format: "onnx".to_owned(),
            digest: digest.to_owned(),
            bytes: 0,
            inputs: vec![],
            outputs: vec![],
            engine: String::new(),
            memory: 0,
            config,
            created: String::new(),
        };
        Arc::new(Model { record, source })
    }

    #[test]
    fn a_public_model_is_everyones_where_they_have_none_of_that_name() {
        let models = Models::default();
        let digest = |tenant: &str| models.find(tenant, "m").map(|model| model.record.digest.clone());
        models.put(model("owner", "one", Visibility::Private));
        assert_eq!(digest("other"), None, "a private one is not found by others");
        models.put(model("owner", "one", Visibility::Public));
        assert_eq!(digest("other").as_deref(), Some("one"));
        assert_eq!((models.of("owner").len(), models.of("other").len()), (1, 1));
        models.put(model("other", "own", Visibility::Private));
        assert_eq!(digest("other").as_deref(), Some("own"), "their own hides it");
        assert_eq!(digest("third").as_deref(), Some("one"), "from them alone");
        assert_eq!(models.of("other").len(), 1);
        models.remove("other", "m");
        assert_eq!(digest("other").as_deref(), Some("one"));
        models.put(model("owner", "one", Visibility::Private));
        assert_eq!(digest("other"), None);
    }

    #[test]
    fn graphs_are_shared_within_a_tenant_and_among_public_models() {
        let [mine, theirs] = ["a", "b"].map(|tenant| model(tenant, "d", Visibility::Private));
        let [public, also] = ["a", "b"].map(|tenant| model(tenant, "d", Visibility::Public));
        assert!(mine.shares_graph(&mine) && public.shares_graph(&also));
        assert!(!mine.shares_graph(&theirs) && !mine.shares_graph(&public));
        assert!(!public.shares_graph(&model("a", "e", Visibility::Public)));
    }
}
