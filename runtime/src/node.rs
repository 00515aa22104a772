//! What all functions of this server share, and the changes to what is deployed.
//!
//! Changes are made one at a time, on disk before in memory, so that what is acknowledged survives a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use tokio::sync::{Mutex, Semaphore};
use weir_gpu::{DeviceConfig, Format, Service};

use crate::config::{Config, Settings};
use crate::function::{Function, FunctionConfig, FunctionRecord, Functions, RevisionRecord, Weight};
use crate::http::problem::{Code, Problem};
use crate::model::{Model, ModelRecord, Models};
use crate::name::Name;
use crate::sandbox::engine::{Checked, Compiler};
use crate::store::{Index, Received, Store};
use crate::telemetry::Telemetry;

/// The server's shared parts.
pub struct Node {
    pub settings: Settings,
    pub store: Store,
    pub compiler: Arc<Compiler>,
    pub service: Service,
    pub models: Arc<Models>,
    pub telemetry: Arc<Telemetry>,
    /// Permits of sandboxes, over all functions.
    pub sandboxes: Arc<Semaphore>,
    pub functions: Functions,
    preparations: Semaphore,
    function_index: Index<FunctionRecord>,
    model_index: Index<ModelRecord>,
    changes: Mutex<()>,
    calls: AtomicU64,
}

/// Whether a deploy changed anything.
pub enum Deployed {
    New(RevisionRecord),
    /// The same bytes and configuration were the newest revision already.
    Same(RevisionRecord),
}

impl Node {
    /// Opens the data directory and restores what is in it.
    ///
    /// # Errors
    /// When the data directory or the sandboxes' engine cannot be had; the text says what to do.
    pub fn open(config: &Config) -> anyhow::Result<Arc<Self>> {
        let settings = config.settings.clone();
        let store = Store::open(&config.data_dir)?;
        let compiler = Compiler::new(&settings.sandbox, store.artifacts()).context(
            "the sandboxes' engine cannot start (it reserves address space; see `sandbox.sandboxes`)",
        )?;
        let devices = DeviceConfig { cpu_lanes: settings.cpu.lanes, queue: settings.cpu.queue };
        let sandboxes = usize::try_from(settings.sandbox.sandboxes.get()).unwrap_or(Semaphore::MAX_PERMITS);
        let node = Arc::new(Self {
            function_index: store.index()?,
            model_index: store.index()?,
            compiler: Arc::new(compiler),
            service: Service::new(&devices),
            models: Arc::default(),
            telemetry: Arc::default(),
            sandboxes: Arc::new(Semaphore::new(sandboxes)),
            functions: Functions::default(),
            preparations: Semaphore::new(settings.sandbox.preparations.get()),
            changes: Mutex::default(),
            calls: AtomicU64::new(0),
            settings,
            store,
        });
        for record in node.model_index.all()? {
            let (tenant, name) = (record.tenant.clone(), record.name.clone());
            match Model::new(record, &node.store) {
                Ok(model) => drop(node.models.put(model)),
                Err(error) => tracing::error!(tenant, name, %error, "a model cannot be restored"),
            }
        }
        for record in node.function_index.all()? {
            node.functions.put(Arc::new(Function::new(&record, &node)));
        }
        Ok(node)
    }

    /// The server has stopped: functions leave memory, and the data directory is free for another server.
    pub fn close(&self) {
        self.functions.clear();
        self.store.unlock();
    }

    /// The number of a new call, counted since the server's start.
    pub fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Compiles and checks a component, and makes it the newest revision of a function, with all of its traffic.
    ///
    /// # Errors
    /// A problem that names what is wrong with component or configuration; nothing has changed then.
    pub async fn deploy(
        self: &Arc<Self>,
        tenant: &Name,
        name: &Name,
        config: FunctionConfig,
        component: Received,
    ) -> Result<Deployed, Problem> {
        config.check(&self.settings).map_err(|reason| Problem::new(Code::InvalidConfig, reason))?;
        self.service
            .has_device(config.device.into())
            .map_err(|error| Problem::new(Code::InvalidConfig, format!("device: {error}")))?;
        let missing = config.models.iter().find(|model| self.models.find(&tenant.shared(), model).is_none());
        if let Some(model) = missing {
            return Err(Problem::new(
                Code::InvalidConfig,
                format!(
                    "models: there is no model `{model}`; upload it first (PUT /v1/models/{model}?format=onnx)"
                ),
            ));
        }
        let newest = self.functions.find(tenant, name).and_then(|function| self.record(&function));
        if let Some(newest) = newest.and_then(|record| record.revisions.last().cloned())
            && newest.digest == component.digest
            && newest.config == config
        {
            return Ok(Deployed::Same(newest));
        }
        let checked = self.compile(&component).await?;

        let _change = self.changes.lock().await;
        let function = self.functions.find(tenant, name);
        let mut record =
            function.as_ref().and_then(|function| self.record(function)).unwrap_or(FunctionRecord {
                tenant: tenant.to_string(),
                name: name.to_string(),
                revisions: vec![],
                traffic: vec![],
            });
        let number = record.revisions.last().map_or(1, |newest| newest.revision + 1);
        let revision = RevisionRecord {
            revision: number,
            digest: component.digest.clone(),
            bytes: component.bytes,
            config,
            imports: checked.imports,
            created: crate::now(),
        };
        record.revisions.push(revision.clone());
        record.traffic = vec![Weight { revision: number, weight: 100 }];
        tokio::task::block_in_place(|| {
            self.store.blobs.keep(component)?;
            self.function_index.put(&record)
        })?;
        match function {
            Some(function) => function.update(&record, self),
            None => self.functions.put(Arc::new(Function::new(&record, self))),
        }
        Ok(Deployed::New(revision))
    }

    async fn compile(&self, component: &Received) -> Result<Checked, Problem> {
        let _turn = self.preparations.acquire().await;
        let bytes = tokio::task::block_in_place(|| component.read())?;
        let (compiler, digest) = (Arc::clone(&self.compiler), component.digest.clone());
        let compiled = tokio::task::spawn_blocking(move || compiler.compile(&digest, &bytes)).await;
        match compiled {
            Ok(Ok(Ok(checked))) => Ok(checked),
            Ok(Ok(Err(rejection))) => {
                self.forget(&component.digest);
                Err(Problem::new(Code::InvalidComponent, rejection.to_string()))
            }
            Ok(Err(error)) => Err(Problem::internal(&error)),
            Err(error) if error.is_panic() => Err(Problem::new(
                Code::InvalidComponent,
                "the component is not valid: the compiler failed on it".to_owned(),
            )),
            Err(error) => Err(Problem::internal(&error.into())),
        }
    }

    /// Removes bytes and artifact of a digest that nothing refers to.
    fn forget(&self, digest: &str) {
        if !self.functions.uses(digest) && !self.models.uses(digest) {
            self.compiler.artifacts().remove(digest);
            self.store.blobs.remove(digest);
        }
    }

    /// A function's record, from the index.
    pub fn record(&self, function: &Function) -> Option<FunctionRecord> {
        let read = self.function_index.get(&function.tenant, &function.name);
        read.inspect_err(
            |error| tracing::error!(function = %function.name, %error, "a definition is not readable"),
        )
        .ok()
    }

    /// Sets the weights of a function's revisions.
    ///
    /// # Errors
    /// For a revision that is not there or is named twice, or when no weight is above zero.
    pub async fn set_traffic(
        self: &Arc<Self>,
        function: &Function,
        traffic: Vec<Weight>,
    ) -> Result<(), Problem> {
        let _change = self.changes.lock().await;
        let mut record = self.record(function).ok_or_else(|| Problem::no_function(&function.name))?;
        for (index, weight) in traffic.iter().enumerate() {
            if !record.revisions.iter().any(|revision| revision.revision == weight.revision) {
                let have: Vec<String> =
                    record.revisions.iter().map(|have| have.revision.to_string()).collect();
                return Err(Problem::new(
                    Code::InvalidConfig,
                    format!(
                        "traffic: there is no revision {}; there are {}",
                        weight.revision,
                        have.join(", ")
                    ),
                ));
            }
            if traffic.iter().skip(index + 1).any(|other| other.revision == weight.revision) {
                return Err(Problem::new(
                    Code::InvalidConfig,
                    format!("traffic: revision {} is named twice", weight.revision),
                ));
            }
        }
        if traffic.iter().all(|weight| weight.weight == 0) {
            return Err(Problem::new(
                Code::InvalidConfig,
                "traffic: at least one weight must be above 0".to_owned(),
            ));
        }
        record.traffic = traffic;
        tokio::task::block_in_place(|| self.function_index.put(&record))?;
        function.update(&record, self);
        Ok(())
    }

    /// Removes a function. Calls that run end as they would; new ones find nothing.
    ///
    /// # Errors
    /// When there is none, or the disk refuses.
    pub async fn delete_function(&self, tenant: &Name, name: &Name) -> Result<(), Problem> {
        let _change = self.changes.lock().await;
        let function = self.functions.find(tenant, name).ok_or_else(|| Problem::no_function(name))?;
        tokio::task::block_in_place(|| self.function_index.remove(tenant, name))?;
        self.functions.remove(tenant, name);
        function.retire();
        for revision in function.revisions() {
            self.forget(&revision.digest);
        }
        Ok(())
    }

    /// Prepares a model once to learn its signature, and keeps it under a name, in place of the one before.
    ///
    /// # Errors
    /// What the engine has against the model; nothing has changed then.
    pub async fn put_model(
        &self,
        tenant: &Name,
        name: &Name,
        format: Format,
        upload: Received,
    ) -> Result<Arc<Model>, Problem> {
        let signature = {
            let _turn = self.preparations.acquire().await;
            let bytes = tokio::task::block_in_place(|| upload.read())?;
            self.service.inspect(format, bytes.into()).await?
        };
        let _change = self.changes.lock().await;
        let record = ModelRecord::new(tenant, name, format, &upload.digest, upload.bytes, &signature);
        let model = Model::new(record, &self.store)?;
        tokio::task::block_in_place(|| {
            self.store.blobs.keep(upload)?;
            self.model_index.put(&model.record)
        })?;
        let before = self.models.find(&tenant.shared(), name);
        let model = self.models.put(model);
        if let Some(before) = before {
            self.forget(&before.record.digest);
        }
        Ok(model)
    }

    /// Removes a model.
    ///
    /// # Errors
    /// When there is none, or when a function with traffic may use it.
    pub async fn delete_model(&self, tenant: &Name, name: &Name) -> Result<(), Problem> {
        let _change = self.changes.lock().await;
        let model = self.models.find(&tenant.shared(), name).ok_or_else(|| Problem::no_model(name))?;
        let uses = |function: &Arc<Function>| {
            function
                .revisions()
                .iter()
                .any(|revision| revision.config.models.iter().any(|model| **model == **name))
        };
        if let Some(function) = self.functions.of(tenant).iter().find(|function| uses(function)) {
            return Err(Problem::new(
                Code::ModelInUse,
                format!("function `{}` may use model `{name}`; delete the function first", function.name),
            ));
        }
        tokio::task::block_in_place(|| self.model_index.remove(tenant, name))?;
        self.models.remove(&tenant.shared(), name);
        self.forget(&model.record.digest);
        Ok(())
    }
}
