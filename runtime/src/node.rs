//! What all functions of this server share, and the changes to what is deployed.
//!
//! Changes are made one at a time, on disk before in memory, so that what is acknowledged survives a crash. Those of
//! functions are here, those of models and tenants in modules of their own.

mod backup;
mod budgets;
mod changes;
mod deploying;
mod keys;
mod models;
mod money;
mod policy;
mod quotas;
mod settings;
mod tenants;
mod traffic;
mod usage;

use deploying::Deploying;
pub use money::{Priced, Restate};
pub use quotas::Used;
pub use tenants::ShareOutcome;

use std::collections::HashSet;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Instant;

use anyhow::Context;
use dashmap::DashMap;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use weir_gpu::{DeviceConfig, GpuFolders, Service};

use crate::access::{Access, Failures, KeyRecord, Keys};
use crate::admission::{Gates, Pool};
use crate::audit::{Actor, Refusals};
use crate::catalog::Catalog;
use crate::config::live::Live;
use crate::config::{self, Config, GpuMode};
use crate::function::{Function, FunctionConfig, FunctionRecord, RevisionRecord};
use crate::hosts::Hosts;
use crate::http::DEV_TENANT;
use crate::http::idempotency::Once;
use crate::http::precondition::{Precondition, Tag};
use crate::http::problem::{self, Problem};
use crate::meter::Meter;
use crate::meter::money::budget::Budgets;
use crate::meter::money::card::RateCard;
use crate::meter::money::credit::Credit;
use crate::meter::money::{BillingRecord, Money};
use crate::meter::residency::Residency;
use crate::model::{Model, ModelRecord, Models};
use crate::name::Name;
use crate::otlp::Exporter;
use crate::policy::Policy;
use crate::preparation::{For, ForCalls, Preparer, Unprepared};
use crate::rates::Rates;
use crate::sandbox::egress::{AddressRules, Egress};
use crate::sandbox::engine::{Code, Compiler, Rejection};
use crate::sandbox::memory::NodeMemory;
use crate::signature::Signature;
use crate::stop::Stop;
use crate::store::{Index, Kept, Kind, Received, Record, Store};
use crate::telemetry::Telemetry;
use crate::tenant::TenantRecord;
use crate::trace::Tracer;
use crate::units::Size;
use crate::webhook::Webhook;

pub use traffic::Traffic;

/// The server's shared parts.
pub struct Node {
    settings: Live,
    pub store: Store,
    pub compiler: Arc<Compiler>,
    pub service: Service,
    pub access: Access,
    /// How often tenants may call.
    pub rates: Rates,
    /// Requests that are done once.
    pub once: Once,
    policy: RwLock<Arc<Policy>>,
    /// How many calls of tenants may run and wait.
    pub gates: Gates,
    /// What usage costs.
    pub money: Money,
    /// What tenants may spend, and have spent.
    pub budgets: Budgets,
    pub models: Arc<Models>,
    pub telemetry: Arc<Telemetry>,
    /// What calls use.
    pub meter: Arc<Meter>,
    /// What is held of devices' memory, and is in no record yet.
    residency: std::sync::Mutex<Residency>,
    /// Where traces, metrics and logs are sent, if anywhere.
    pub exporter: Option<Arc<Exporter>>,
    /// Where it is told what was used, if anywhere.
    pub webhook: Option<Arc<Webhook>>,
    pub tracer: Tracer,
    /// The sandboxes that there may be at one time, over all functions.
    pub sandboxes: Arc<Pool>,
    pub memory: Arc<NodeMemory>,
    pub egress: Arc<Egress>,
    pub functions: Catalog<Function>,
    pub hosts: Hosts,
    /// Where what a GPU needs is looked for.
    pub gpu: GpuFolders,
    pub started: Instant,
    pub stop: Stop,
    preparer: Arc<Preparer>,
    uploads: Arc<Semaphore>,
    backups: Arc<Semaphore>,
    function_index: Index<FunctionRecord>,
    model_index: Index<ModelRecord>,
    tenant_index: Index<TenantRecord>,
    key_index: Index<KeyRecord>,
    rate_card_index: Index<RateCard>,
    billing_index: Index<BillingRecord>,
    credit_index: Index<Credit>,
    /// Those that are kept, by tenant.
    tenants: DashMap<Arc<str>, TenantRecord>,
    changes: Mutex<()>,
    refusals: Refusals,
    deploying: Deploying,
    calls: AtomicU64,
}

/// All that the index of older versions has.
fn kinds() -> [Kind; 4] {
    [
        Kind::of::<FunctionRecord>(),
        Kind::of::<ModelRecord>(),
        Kind::of::<TenantRecord>(),
        Kind::of::<KeyRecord>(),
    ]
}

/// A component on its way to be a revision.
pub struct Deploy {
    pub config: FunctionConfig,
    pub component: Received,
    /// Percent of the traffic that it gets, 0 to 100; a function's first revision gets all.
    pub traffic: u8,
    pub signature: Option<Signature>,
    /// The name of the key that made the signature, once that is known.
    pub signed_by: Option<String>,
    /// Who deploys it.
    pub by: Actor,
    pub condition: Precondition,
}

/// What a deploy made of a function, whose newest revision is the deployed one.
pub struct Deployed {
    pub outcome: DeployOutcome,
    pub record: FunctionRecord,
    pub tag: Tag,
}

/// Whether a deploy changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeployOutcome {
    New,
    /// The same bytes and configuration were the newest revision already.
    Same,
}

impl Node {
    /// Opens the data directory and restores what is in it.
    ///
    /// # Errors
    /// When the data directory or the sandboxes' engine cannot be had; the text says what to do.
    pub async fn open(config: &Config) -> anyhow::Result<Arc<Self>> {
        let settings = config.settings.clone();
        let store = Store::open(&config.data_dir, &kinds()).await?;
        let meter = Meter::open(&config.data_dir, store.usage_position().await?, &settings.metering)?;
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
        let exporter = Exporter::start(&settings.otlp)?;
        let webhook = Webhook::new(&settings.webhook)?;
        let node = Arc::new(Self {
            tracer: Tracer::new(exporter.as_ref(), &settings.otlp, config.tls.is_some()),
            exporter,
            webhook,
            function_index: store.index(),
            model_index: store.index(),
            tenant_index: store.index(),
            key_index: store.index(),
            rate_card_index: store.index(),
            billing_index: store.index(),
            credit_index: store.index(),
            access,
            rates: Rates::default(),
            once: Once::default(),
            policy: RwLock::new(Arc::new(config.policy.clone())),
            gates: Gates::default(),
            money: Money::default(),
            budgets: Budgets::default(),
            tenants: DashMap::new(),
            gpu: config::gpu_folders(),
            started: Instant::now(),
            compiler: Arc::new(compiler),
            service,
            models: Arc::default(),
            telemetry,
            meter: Arc::new(meter),
            residency: std::sync::Mutex::default(),
            sandboxes: Pool::new(settings.sandbox.sandboxes.get()),
            memory: Arc::new(NodeMemory::new(memory)),
            egress: Arc::new(Egress::new(AddressRules { allowed: settings.egress.allow.clone() })?),
            functions: Catalog::default(),
            hosts: Hosts::default(),
            stop: Stop::default(),
            preparer,
            backups: Arc::new(Semaphore::new(1)),
            uploads: Arc::new(Semaphore::new(settings.preparation.uploads.get())),
            changes: Mutex::default(),
            refusals: Refusals::default(),
            deploying: Deploying::default(),
            calls: AtomicU64::new(0),
            settings: Live::new(settings),
            store,
        });
        node.restore().await?;
        node.restore_keys(config).await?;
        Ok(node)
    }

    async fn restore(self: &Arc<Self>) -> anyhow::Result<()> {
        let mut used = HashSet::new();
        let (models, mut whole) = self.model_index.all().await?;
        for record in models {
            used.insert(record.digest.clone());
            let (tenant, name) = (record.tenant.clone(), record.name.clone());
            match Model::new(record, &self.store, &self.settings()) {
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
            self.warn_of_violations(&record);
            let function = Arc::new(Function::new(&record, self));
            self.functions.put(&record.tenant, &record.name, function);
            self.hosts.settle(&record);
        }
        // A crash between two steps leaves bytes that nothing refers to. What an unreadable definition refers to is
        // not known, so nothing goes while there is one.
        if whole && readable {
            self.store.blobs.sweep(|digest| used.contains(digest))?;
            self.compiler.artifacts().sweep(|digest| used.contains(digest))?;
            self.store.sweep_logs(|tenant, name| self.functions.find(tenant, name).is_some())?;
        }
        self.restore_money().await?;
        self.restore_tenants().await?;
        // Before the first call is admitted.
        self.look_at_budgets().await;
        Ok(())
    }

    /// Lets go of all functions, which hold this node as it holds them.
    pub fn let_go(&self) {
        for function in self.functions.take() {
            function.rest();
        }
    }

    /// The server has stopped: functions leave memory, and the data directory is free for another server.
    pub async fn close(&self) {
        self.let_go();
        self.keep_key_uses().await;
        self.record_last().await;
        self.meter.close(&self.store).await;
        if let Some(exporter) = &self.exporter {
            exporter.close().await;
        }
        self.store.close().await;
    }

    /// A place for one upload, from its first byte to its end.
    ///
    /// # Errors
    /// When as many are under way as may be.
    pub fn upload(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.uploads).try_acquire_owned().map_err(|_| {
            let most = self.settings().preparation.uploads;
            let detail = format!("{most} uploads are under way, the most at one time");
            Problem::new(problem::Code::ServerOverloaded, detail)
        })
    }

    /// The number of a new call, counted since the server's start.
    pub fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Compiles and checks a component, and makes it the newest revision of a function, with its share of the traffic. Where
    /// others serve already, it has been started before it gets any.
    ///
    /// # Errors
    /// A problem that names what is wrong with component or configuration; nothing has changed then.
    pub async fn deploy(
        self: &Arc<Self>,
        tenant: &Name,
        name: &Name,
        mut deploy: Deploy,
    ) -> Result<Deployed, Problem> {
        let invalid = |reason| Problem::new(problem::Code::InvalidConfig, reason);
        deploy.config.check(&self.settings()).map_err(invalid)?;
        self.service
            .has_device(deploy.config.device.into())
            .map_err(|error| Problem::new(problem::Code::InvalidConfig, format!("device: {error}")))?;
        deploy.signed_by = self.signer(tenant, &deploy.component.digest, deploy.signature.as_ref())?;
        if let Some(same) = self.admit(tenant, name, &deploy).await? {
            return self.deploy_again(tenant, name, same, &deploy).await;
        }
        let digest = deploy.component.digest.clone();
        let placed = {
            let _held = self.deploying.hold(&digest);
            match self.compile(&deploy.component).await {
                Ok(code) => self.place(tenant, name, deploy, &code).await,
                Err(problem) => Err(problem),
            }
        };
        if placed.is_err() {
            let _change = self.changes.lock().await;
            self.forget(&digest);
        }
        placed
    }

    /// Makes a component that is compiled the newest revision of a function.
    async fn place(
        self: &Arc<Self>,
        tenant: &Name,
        name: &Name,
        deploy: Deploy,
        code: &Code,
    ) -> Result<Deployed, Problem> {
        let (draft, _) = self.draft(tenant, name, &deploy, code).await?;
        let started = match (self.functions.find(tenant, name), draft.revisions.last()) {
            (Some(function), Some(revision)) if draft.serves(revision.revision) => {
                Some(self.try_revision(&function, revision).await?)
            }
            _ => None,
        };

        let change = self.change_by(&deploy.by).await?;
        // That took a while; what was asked before it may have changed.
        if let Some(same) = self.admit(tenant, name, &deploy).await? {
            drop(change);
            return self.deploy_again(tenant, name, same, &deploy).await;
        }
        let (record, number) = self.draft(tenant, name, &deploy, code).await?;
        let version = self.keep(deploy.component, &record, &deploy.by).await?;
        match self.functions.find(tenant, name) {
            Some(function) => {
                let started = started.and_then(|started| started.take(number));
                let removed = function.update(&record, self, started);
                self.forget_revisions(removed);
            }
            None => self.functions.put(tenant, name, Arc::new(Function::new(&record, self))),
        }
        self.hosts.settle(&record);
        let kept = Kept { record, version };
        let tag = Tag::from(&kept);
        Ok(Deployed { outcome: DeployOutcome::New, record: kept.record, tag })
    }

    /// A function as a deploy would have it, and the number of its newest revision.
    async fn draft(
        &self,
        tenant: &Name,
        name: &Name,
        deploy: &Deploy,
        code: &Code,
    ) -> Result<(FunctionRecord, u64), Problem> {
        self.allowed(tenant, &deploy.config, &code.imports, deploy.signed_by.as_deref())?;
        let mut record = match self.functions.find(tenant, name) {
            Some(function) => self.record(&function).await?.record,
            None => FunctionRecord {
                tenant: tenant.to_string(),
                name: name.to_string(),
                revisions: vec![],
                traffic: vec![],
                sticky_header: None,
                settled_before: None,
            },
        };
        let number = record.revisions.last().map_or(1, |newest| newest.revision + 1);
        record.revisions.push(RevisionRecord {
            revision: number,
            digest: deploy.component.digest.clone(),
            bytes: deploy.component.bytes,
            config: deploy.config.clone(),
            imports: code.imports.clone(),
            signed_by: deploy.signed_by.clone(),
            created: crate::now(),
            created_by: deploy.by.key.clone(),
        });
        record.canary(number, deploy.traffic);
        record.retain(self.settings().functions.keep_revisions.get());
        self.hosts.check(&record, &self.settings().http)?;
        Ok((record, number))
    }

    /// Keeps bytes, and then the definition that names them.
    async fn keep<T: Record>(&self, bytes: Received, record: &T, by: &Actor) -> Result<i64, Problem> {
        tokio::task::block_in_place(|| self.store.blobs.keep(bytes))?;
        self.write(record, by).await
    }

    /// Whether a deploy's models are there and its condition holds; the function, if the deploy says its newest revision
    /// again.
    async fn admit(&self, tenant: &Name, name: &Name, deploy: &Deploy) -> Result<Option<Deployed>, Problem> {
        let Deploy { config, component, condition, signed_by, .. } = deploy;
        if let Some(model) = config.models.iter().find(|model| self.models.find(tenant, model).is_none()) {
            return Err(Problem::new(
                problem::Code::InvalidConfig,
                format!(
                    "models: there is no model `{model}`; upload it first (PUT /v1/models/{model}?format=onnx)"
                ),
            ));
        }
        let room = || self.room_for_revision(tenant, name, config, component);
        let Some(function) = self.functions.find(tenant, name) else {
            condition.check::<FunctionRecord>(None)?;
            return room().map(|()| None);
        };
        let kept = self.record(&function).await?;
        condition.check(Some(&kept))?;
        let newest = kept.record.revisions.last();
        let is_same = newest.is_some_and(|newest| {
            newest.digest == component.digest && newest.config == *config && newest.signed_by == *signed_by
        });
        let tag = Tag::from(&kept);
        if is_same {
            return Ok(Some(Deployed { outcome: DeployOutcome::Same, record: kept.record, tag }));
        }
        room().map(|()| None)
    }

    /// The code of an uploaded component: its artifact if there is one, or a new one.
    async fn compile(self: &Arc<Self>, component: &Received) -> Result<Code, Problem> {
        let code = self.code(&component.digest, For::Upload, || component.open()).await;
        code.map_err(|error| match error.downcast::<Rejection>() {
            Ok(rejection) => Problem::new(problem::Code::InvalidComponent, rejection.to_string()),
            Err(error) => match error.downcast::<Unprepared>() {
                Ok(unprepared) => unprepared.into(),
                Err(error) => error.into(),
            },
        })
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
        open: impl FnOnce() -> std::io::Result<File>,
    ) -> anyhow::Result<Code> {
        if let Some(code) = self.map(digest).await? {
            return Ok(code);
        }
        let mut draft = self.compiler.artifacts().draft(digest)?;
        self.preparer.compile(waits, open()?, &mut draft).await?;
        tokio::task::block_in_place(|| self.compiler.artifacts().keep(draft))?;
        let code = self.map(digest).await?;
        code.ok_or_else(|| anyhow::anyhow!("an artifact that was just made cannot be mapped"))
    }

    async fn map(self: &Arc<Self>, digest: &str) -> anyhow::Result<Option<Code>> {
        let (node, digest) = (Arc::clone(self), digest.to_owned());
        Ok(tokio::task::spawn_blocking(move || node.compiler.load(&digest)).await??)
    }

    fn uses(&self, digest: &str) -> bool {
        self.deploying.has(digest)
            || self.functions.any(|function| function.uses(digest))
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
    pub async fn record(&self, function: &Function) -> Result<Kept<FunctionRecord>, Problem> {
        let kept = self.function_index.get(&function.tenant, &function.name).await?;
        kept.ok_or_else(|| Problem::no_function(&function.name))
    }

    /// Removes a function. Calls that it has got end as they would; new ones find nothing.
    ///
    /// # Errors
    /// When there is none, a condition does not hold, or the disk refuses.
    pub async fn delete_function(
        self: &Arc<Self>,
        tenant: &Name,
        name: &Name,
        by: &Actor,
        condition: &Precondition,
    ) -> Result<(), Problem> {
        let _change = self.change_by(by).await?;
        let function = self.functions.find(tenant, name).ok_or_else(|| Problem::no_function(name))?;
        condition.check(Some(&self.record(&function).await?))?;
        self.erase::<FunctionRecord>(tenant, name, by).await?;
        self.functions.remove(tenant, name);
        self.hosts.remove(tenant, name);
        self.forget_revisions(function.rest());
        function.log.remove();
        Ok(())
    }
}
