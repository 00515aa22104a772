//! What all functions of this server share, and the changes to what is deployed.
//!
//! Changes are made one at a time, on disk before in memory, so that what is acknowledged survives a crash. Those of
//! functions are here, those of models and tenants in modules of their own.

mod keys;
mod models;
mod quotas;
mod tenants;

pub use quotas::Used;

use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Context;
use dashmap::DashMap;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use weir_gpu::{DeviceConfig, GpuFolders, Service};

use crate::access::{Access, Failures, KeyRecord, Keys};
use crate::admission::{Gates, Pool};
use crate::budget::Budgets;
use crate::catalog::Catalog;
use crate::config::{self, Config, GpuMode, Settings};
use crate::function::{Function, FunctionConfig, FunctionRecord, RevisionRecord, Weight};
use crate::http::DEV_TENANT;
use crate::http::problem::{self, Problem};
use crate::model::{Model, ModelRecord, Models};
use crate::name::Name;
use crate::preparation::{For, ForCalls, Preparer, Unprepared};
use crate::rates::Rates;
use crate::sandbox::egress::{AddressRules, Egress};
use crate::sandbox::engine::{Code, Compiler, Rejection};
use crate::sandbox::memory::NodeMemory;
use crate::store::{Index, Kind, Received, Record, Store};
use crate::telemetry::Telemetry;
use crate::tenant::TenantRecord;
use crate::units::Size;

/// The server's shared parts.
pub struct Node {
    pub settings: Settings,
    pub store: Store,
    pub compiler: Arc<Compiler>,
    pub service: Service,
    pub access: Access,
    /// How often tenants may call.
    pub rates: Rates,
    /// How many calls of tenants may run and wait.
    pub gates: Gates,
    /// What tenants have spent.
    pub budgets: Arc<Budgets>,
    pub models: Arc<Models>,
    pub telemetry: Arc<Telemetry>,
    /// The sandboxes that there may be at one time, over all functions.
    pub sandboxes: Arc<Pool>,
    pub memory: Arc<NodeMemory>,
    pub egress: Arc<Egress>,
    pub functions: Catalog<Function>,
    /// Where what a GPU needs is looked for.
    pub gpu: GpuFolders,
    pub started: Instant,
    /// Cancelled when the server is told to stop.
    pub stopping: CancellationToken,
    preparer: Arc<Preparer>,
    uploads: Arc<Semaphore>,
    function_index: Index<FunctionRecord>,
    model_index: Index<ModelRecord>,
    tenant_index: Index<TenantRecord>,
    key_index: Index<KeyRecord>,
    /// Those that are kept, by tenant.
    tenants: DashMap<Arc<str>, TenantRecord>,
    changes: Mutex<()>,
    calls: AtomicU64,
}

/// All that the index has.
fn kinds() -> [Kind; 4] {
    [
        Kind::of::<FunctionRecord>(),
        Kind::of::<ModelRecord>(),
        Kind::of::<TenantRecord>(),
        Kind::of::<KeyRecord>(),
    ]
}

/// How often a component is compiled for one asker.
const COMPILATIONS: usize = 4;

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
    pub async fn open(config: &Config) -> anyhow::Result<Arc<Self>> {
        let settings = config.settings.clone();
        let store = Store::open(&config.data_dir, &kinds()).await?;
        let compiler = Compiler::new(&settings, store.artifacts(), store.key()?).context(
            "the sandboxes' engine cannot start (it reserves address space; see `sandbox.sandboxes`)",
        )?;
        let telemetry = Arc::<Telemetry>::default();
        let preparer = Arc::new(Preparer::new(config.binary.clone(), &settings, Arc::clone(&telemetry)));
        let available = config::available_memory();
        let devices = DeviceConfig {
            cpu_lanes: settings.cpu.lanes,
            queue: settings.cpu.queue,
            memory: settings.cpu.memory.unwrap_or(Size::bytes(available.as_u64() / 4)).as_u64(),
            sharing: (&settings.scheduling).into(),
            tenant: (&settings.tenant).into(),
            eviction: settings.scheduling.eviction.into(),
            model: preparer.model_limits(),
            gpu: match settings.gpu.mode {
                GpuMode::Off => None,
                GpuMode::Required => Some((&settings.gpu).into()),
                GpuMode::Auto => Some(weir_gpu::GpuConfig {
                    only_with: Some(config::gpu_folders()),
                    ..(&settings.gpu).into()
                }),
            },
        };
        let memory = settings.sandbox.memory.unwrap_or(Size::bytes(available.as_u64() / 2));
        tracing::info!("sandboxes may have {memory}, models {}", Size::bytes(devices.memory));
        let service = Service::new(&devices, Arc::new(ForCalls(Arc::clone(&preparer))));
        if settings.gpu.mode == GpuMode::Required
            && let Some(reason) = service.no_gpu()
        {
            anyhow::bail!("the configuration has gpu.mode = \"required\", and there is no GPU: {reason}");
        }
        let access = match config.dev {
            true => Access::Dev(Name::tenant(DEV_TENANT).map_err(anyhow::Error::msg)?),
            false => Access::Keys { keys: Keys::default(), failures: Failures::default() },
        };
        let node = Arc::new(Self {
            function_index: store.index(),
            model_index: store.index(),
            tenant_index: store.index(),
            key_index: store.index(),
            access,
            rates: Rates::default(),
            gates: Gates::default(),
            budgets: Arc::default(),
            tenants: DashMap::new(),
            gpu: config::gpu_folders(),
            started: Instant::now(),
            compiler: Arc::new(compiler),
            service,
            models: Arc::default(),
            telemetry,
            sandboxes: Pool::new(settings.sandbox.sandboxes.get()),
            memory: Arc::new(NodeMemory::new(memory)),
            egress: Arc::new(Egress::new(AddressRules { allowed: settings.egress.allow.clone() })?),
            functions: Catalog::default(),
            stopping: CancellationToken::new(),
            preparer,
            uploads: Arc::new(Semaphore::new(settings.preparation.uploads.get())),
            changes: Mutex::default(),
            calls: AtomicU64::new(0),
            settings,
            store,
        });
        node.restore().await?;
        node.restore_keys(&config.data_dir).await?;
        Ok(node)
    }

    async fn restore(self: &Arc<Self>) -> anyhow::Result<()> {
        let mut used = HashSet::new();
        let (models, mut whole) = self.model_index.all().await?;
        for record in models {
            used.insert(record.digest.clone());
            let (tenant, name) = (record.tenant.clone(), record.name.clone());
            match Model::new(record, &self.store, &self.settings) {
                Ok(model) => self.models.put(Arc::new(model)),
                Err(error) => {
                    tracing::error!(tenant, name, %error, "a model cannot be restored");
                    whole = false;
                }
            }
        }
        let (functions, readable) = self.function_index.all().await?;
        for record in functions {
            used.extend(record.revisions.iter().map(|revision| revision.digest.clone()));
            let function = Arc::new(Function::new(&record, self));
            self.functions.put(&record.tenant, &record.name, function);
        }
        // A crash between two steps leaves bytes that nothing refers to. What an unreadable definition refers to is
        // not known, so nothing goes while there is one.
        if whole && readable {
            self.store.blobs.sweep(|digest| used.contains(digest))?;
            self.compiler.artifacts().sweep(|digest| used.contains(digest))?;
            self.store.sweep_logs(|tenant, name| self.functions.find(tenant, name).is_some())?;
        }
        self.restore_tenants().await
    }

    /// The server has stopped: functions leave memory, and the data directory is free for another server.
    pub async fn close(&self) {
        for function in self.functions.take() {
            function.rest();
        }
        self.store.close().await;
    }

    /// A place for one upload, from its first byte to its end.
    ///
    /// # Errors
    /// When as many are under way as may be.
    pub fn upload(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.uploads).try_acquire_owned().map_err(|_| {
            let most = self.settings.preparation.uploads;
            let detail = format!("{most} uploads are under way, the most at one time");
            Problem::new(problem::Code::ServerOverloaded, detail)
        })
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
        config.check(&self.settings).map_err(|reason| Problem::new(problem::Code::InvalidConfig, reason))?;
        self.service
            .has_device(config.device.into())
            .map_err(|error| Problem::new(problem::Code::InvalidConfig, format!("device: {error}")))?;
        if let Some(same) = self.admit(tenant, name, &config, &component).await? {
            return Ok(Deployed::Same(same));
        }
        let code = self.compile(&component).await?;

        let _change = self.changes.lock().await;
        // Compiling took a while; what was asked before it may have changed.
        if let Some(same) = self.admit(tenant, name, &config, &component).await? {
            return Ok(Deployed::Same(same));
        }
        let function = self.functions.find(tenant, name);
        let mut record = match &function {
            Some(function) => self.record(function).await?,
            None => FunctionRecord {
                tenant: tenant.to_string(),
                name: name.to_string(),
                revisions: vec![],
                traffic: vec![],
            },
        };
        let number = record.revisions.last().map_or(1, |newest| newest.revision + 1);
        let revision = RevisionRecord {
            revision: number,
            digest: component.digest.clone(),
            bytes: component.bytes,
            config,
            imports: code.imports,
            created: crate::now(),
        };
        record.revisions.push(revision.clone());
        record.traffic = vec![Weight { revision: number, weight: 100 }];
        if let Err(problem) = self.keep(component, &self.function_index, &record).await {
            self.forget(&revision.digest);
            return Err(problem);
        }
        match function {
            Some(function) => function.update(&record, self),
            None => self.functions.put(tenant, name, Arc::new(Function::new(&record, self))),
        }
        Ok(Deployed::New(revision))
    }

    /// Keeps bytes, and then the definition that names them.
    async fn keep<T: Record>(&self, bytes: Received, index: &Index<T>, record: &T) -> Result<(), Problem> {
        tokio::task::block_in_place(|| self.store.blobs.keep(bytes))?;
        index.put(record).await?;
        Ok(())
    }

    /// Whether a deploy's models are there, and its tenant may have it; the newest revision, if the deploy says the same again.
    async fn admit(
        &self,
        tenant: &Name,
        name: &Name,
        config: &FunctionConfig,
        component: &Received,
    ) -> Result<Option<RevisionRecord>, Problem> {
        if let Some(model) = config.models.iter().find(|model| self.models.find(tenant, model).is_none()) {
            return Err(Problem::new(
                problem::Code::InvalidConfig,
                format!(
                    "models: there is no model `{model}`; upload it first (PUT /v1/models/{model}?format=onnx)"
                ),
            ));
        }
        if let Some(function) = self.functions.find(tenant, name) {
            let newest = self.record(&function).await?.revisions.pop();
            let is_same =
                |newest: &RevisionRecord| newest.digest == component.digest && newest.config == *config;
            if let Some(same) = newest.filter(is_same) {
                return Ok(Some(same));
            }
        }
        self.room_for_revision(tenant, name, config, component)?;
        Ok(None)
    }

    /// The code of an uploaded component: its artifact if there is one, or a new one.
    async fn compile(self: &Arc<Self>, component: &Received) -> Result<Code, Problem> {
        let code = self.code(&component.digest, For::Upload, || component.open()).await;
        match code {
            Ok(code) => Ok(code),
            Err(error) => {
                let _change = self.changes.lock().await;
                if !self.uses(&component.digest) {
                    self.compiler.artifacts().remove(&component.digest);
                }
                Err(match error.downcast::<Rejection>() {
                    Ok(rejection) => Problem::new(problem::Code::InvalidComponent, rejection.to_string()),
                    Err(error) => match error.downcast::<Unprepared>() {
                        Ok(unprepared) => unprepared.into(),
                        Err(error) => error.into(),
                    },
                })
            }
        }
    }

    /// The code of a deployed component, mapped. Without an artifact (the engine is another since the deploy, or the
    /// file is not what was written) it is compiled again.
    ///
    /// # Errors
    /// When the component's bytes are gone, or this engine refuses them.
    pub async fn deployed_code(self: &Arc<Self>, digest: &str) -> anyhow::Result<Code> {
        self.code(digest, For::Call, || File::open(self.store.blobs.path(digest))).await
    }

    async fn code(
        self: &Arc<Self>,
        digest: &str,
        waits: For,
        open: impl Fn() -> std::io::Result<File>,
    ) -> anyhow::Result<Code> {
        // What was made may be gone before it is mapped, where others deploy or delete the same component.
        for _ in 0..COMPILATIONS {
            if let Some(code) = self.map(digest).await? {
                return Ok(code);
            }
            let mut draft = self.compiler.artifacts().draft(digest)?;
            self.preparer.compile(waits, open()?, &mut draft).await?;
            tokio::task::block_in_place(|| self.compiler.artifacts().keep(draft))?;
        }
        let code = self.map(digest).await?;
        code.ok_or_else(|| anyhow::anyhow!("an artifact that was just made cannot be mapped"))
    }

    async fn map(self: &Arc<Self>, digest: &str) -> anyhow::Result<Option<Code>> {
        let (node, digest) = (Arc::clone(self), digest.to_owned());
        Ok(tokio::task::spawn_blocking(move || node.compiler.load(&digest)).await??)
    }

    fn uses(&self, digest: &str) -> bool {
        self.functions.any(|function| function.uses(digest))
            || self.models.first(|model| model.record.digest == digest).is_some()
    }

    /// Removes bytes and artifact of a digest that nothing refers to. Only for who makes a change.
    fn forget(&self, digest: &str) {
        if !self.uses(digest) {
            self.compiler.artifacts().remove(digest);
            self.store.blobs.remove(digest);
        }
    }

    /// A function's record, from the index.
    ///
    /// # Errors
    /// When it was deleted meanwhile, or the disk cannot give it.
    pub async fn record(&self, function: &Function) -> Result<FunctionRecord, Problem> {
        let kept = self.function_index.get(&function.tenant, &function.name).await?;
        kept.map(|kept| kept.record).ok_or_else(|| Problem::no_function(&function.name))
    }

    /// Sets the weights of a function's revisions.
    ///
    /// # Errors
    /// For a revision that is not there or is named twice, or when no weight is above zero.
    pub async fn set_traffic(
        self: &Arc<Self>,
        tenant: &Name,
        name: &Name,
        traffic: Vec<Weight>,
    ) -> Result<(), Problem> {
        let _change = self.changes.lock().await;
        let function = self.functions.find(tenant, name).ok_or_else(|| Problem::no_function(name))?;
        let mut record = self.record(&function).await?;
        for (index, weight) in traffic.iter().enumerate() {
            if !record.revisions.iter().any(|revision| revision.revision == weight.revision) {
                let have: Vec<String> =
                    record.revisions.iter().map(|have| have.revision.to_string()).collect();
                return Err(Problem::new(
                    problem::Code::InvalidConfig,
                    format!(
                        "traffic: there is no revision {}; there are {}",
                        weight.revision,
                        have.join(", ")
                    ),
                ));
            }
            if traffic.iter().skip(index + 1).any(|other| other.revision == weight.revision) {
                return Err(Problem::new(
                    problem::Code::InvalidConfig,
                    format!("traffic: revision {} is named twice", weight.revision),
                ));
            }
        }
        if traffic.iter().all(|weight| weight.weight == 0) {
            return Err(Problem::new(
                problem::Code::InvalidConfig,
                "traffic: at least one weight must be above 0".to_owned(),
            ));
        }
        record.traffic = traffic;
        self.function_index.put(&record).await?;
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
        self.function_index.remove(tenant, name).await?;
        self.functions.remove(tenant, name);
        function.rest();
        function.log.remove();
        for revision in function.revisions() {
            self.forget(&revision.digest);
        }
        Ok(())
    }
}
