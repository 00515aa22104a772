//! From zero to awake and back.
//!
//! A revision at zero is an entry and nothing more. The first call starts it; all others that come meanwhile wait for
//! the same start, each under the start-up timeout. An awake revision holds its mapped code, and stays so until it
//! has had no call for its idle timeout; then all of it goes. The graphs that its guests open stay or go by their models'
//! own policy.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::pool::Pool;
use super::revision::Revision;
use crate::http::problem::Problem;
use crate::limits::Limit;
use crate::sandbox::wasi_nn::ModelAccess;
use crate::telemetry::Gauge;

/// Where a revision is between zero and awake.
#[derive(Default)]
pub enum State {
    #[default]
    Zero,
    Starting(Start),
    Ready(Arc<Awake>),
    /// The last start failed; the next call tries again.
    Failed(String),
}

/// The same, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Nothing of it is in memory.
    Zero,
    Starting,
    Ready,
    /// The last start failed; the next call tries again.
    Failed,
}

type Start = Shared<BoxFuture<'static, Result<Arc<Awake>, StartError>>>;

/// Why a revision did not wake.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    #[error("the function did not start within {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    #[error("the function cannot start: {0}")]
    Failed(String),
}

/// A revision with its code mapped and its sandboxes possible.
pub struct Awake {
    pool: Arc<Pool>,
    models: Arc<ModelAccess>,
    active: AtomicU32,
    last_used: Mutex<Instant>,
    _retire: DropGuard,
    _counted: Gauge,
}

/// Keeps a revision awake while a call runs.
pub struct Use {
    awake: Arc<Awake>,
    /// Whether it was this call that woke it from zero.
    woke: bool,
}

/// What one start from zero took.
#[derive(Default)]
pub struct ColdStart {
    code: AtomicU64,
    sandbox: AtomicU64,
    models: Mutex<Weak<ModelAccess>>,
    graph: AtomicU64,
}

impl ColdStart {
    /// Notes the first sandbox's time; false if it was not the first.
    pub fn first_sandbox(&self, took: Duration) -> bool {
        let nanos = nanos(took).max(1);
        self.sandbox.compare_exchange(0, nanos, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Milliseconds of the phases: code, graph, sandbox.
    pub fn phases(&self) -> [f64; 3] {
        // The access goes with the awake revision; what it had counted stays here.
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let graph = models.map_or(self.graph.load(Ordering::Relaxed), |models| models.loading());
        let [code, sandbox] = [&self.code, &self.sandbox].map(|phase| phase.load(Ordering::Relaxed));
        [code, graph, sandbox].map(|nanos| Duration::from_nanos(nanos).as_secs_f64() * 1e3)
    }
}

pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Awake {
    fn enter(self: &Arc<Self>, woke: bool) -> Use {
        self.active.fetch_add(1, Ordering::Relaxed);
        Use { awake: Arc::clone(self), woke }
    }

    fn last_used(&self) -> MutexGuard<'_, Instant> {
        self.last_used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Use {
    pub fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.awake.pool)
    }

    /// Nanoseconds that mapping the code took, if it was this call that woke the revision from zero.
    pub fn cold_code(&self) -> Option<u64> {
        self.woke.then(|| self.awake.pool.cold.code.load(Ordering::Relaxed))
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        *self.awake.last_used() = Instant::now();
        self.awake.active.fetch_sub(1, Ordering::Release);
    }
}

impl Revision {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it is, and why it failed.
    pub fn status(&self) -> (Stage, Option<String>) {
        match &*self.state() {
            State::Zero => (Stage::Zero, None),
            State::Starting(_) => (Stage::Starting, None),
            State::Ready(_) => (Stage::Ready, None),
            State::Failed(reason) => (Stage::Failed, Some(reason.clone())),
        }
    }

    /// The revision, awake. At zero this starts it, or waits for the start that is under way.
    ///
    /// # Errors
    /// [`StartError`]; a start that times out for its callers goes on and may be ready for the next.
    pub async fn wake(self: &Arc<Self>) -> Result<Use, StartError> {
        let (start, wakes) = {
            let mut state = self.state();
            match &*state {
                State::Ready(awake) => return Ok(awake.enter(false)),
                State::Starting(start) => (start.clone(), false),
                State::Zero | State::Failed(_) => {
                    let starting = tokio::spawn(Arc::clone(self).start());
                    let failed = |error: tokio::task::JoinError| Err(StartError::Failed(error.to_string()));
                    let start = starting.map(move |result| result.unwrap_or_else(failed)).boxed().shared();
                    *state = State::Starting(start.clone());
                    (start, true)
                }
            }
        };
        let patience = self.config.startup_timeout;
        let awake = tokio::time::timeout(patience, start).await.map_err(|_| {
            self.node.telemetry.limit(Limit::StartTime);
            StartError::TimedOut(patience)
        })??;
        Ok(awake.enter(wakes))
    }

    /// Shows that it can serve calls, before it gets any: it wakes, and a sandbox of it is made.
    ///
    /// # Errors
    /// Why it cannot.
    pub async fn try_start(self: &Arc<Self>) -> Result<(), Problem> {
        let device = self.node.service.has_device(self.config.device.into());
        device.map_err(|error| StartError::Failed(format!("device: {error}")))?;
        Ok(self.wake().await?.pool().try_start().await?)
    }

    /// Maps the code, makes the pool, and becomes ready.
    async fn start(self: Arc<Self>) -> Result<Arc<Awake>, StartError> {
        let started = Instant::now();
        let code = match self.node.deployed_code(&self.digest).await {
            Ok(code) => code,
            Err(error) => return Err(self.fail(format!("{error:#}"))),
        };
        let took = started.elapsed();
        let cold = Arc::new(ColdStart::default());
        cold.code.store(nanos(took), Ordering::Relaxed);

        let node = &self.node;
        let models = Arc::new(ModelAccess::new(
            Arc::clone(&self.tenant),
            &self.config,
            Arc::clone(&node.models),
            node.service.clone(),
            Arc::clone(&node.telemetry),
        ));
        *cold.models.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&models);
        let retired = CancellationToken::new();
        let pool = Pool {
            engine: node.compiler.engine().clone(),
            pre: code.pre,
            common: self.common(Arc::clone(&models)),
            reuse: self.config.reuse.get(),
            startup_timeout: self.config.startup_timeout,
            idle_timeout: self.config.idle_timeout,
            sandboxes: Arc::clone(&node.sandboxes),
            tenant: Arc::clone(&self.tenant),
            cold: Arc::clone(&cold),
            telemetry: Arc::clone(&node.telemetry),
            retired: retired.clone(),
            idle: Mutex::default(),
        };
        let awake = Arc::new(Awake {
            pool: Arc::new(pool),
            models,
            active: AtomicU32::new(0),
            last_used: Mutex::new(Instant::now()),
            _retire: retired.drop_guard(),
            _counted: node.telemetry.awake(),
        });
        node.telemetry.cold_start_code(took);
        self.tally.cold_start();
        self.woke(cold);
        *self.state() = State::Ready(Arc::clone(&awake));
        tokio::spawn(Arc::clone(&self).rest());
        Ok(awake)
    }

    fn fail(&self, reason: String) -> StartError {
        tracing::error!(tenant = %self.tenant, function = %self.function, revision = self.number, reason, "no start");
        *self.state() = State::Failed(reason.clone());
        StartError::Failed(reason)
    }

    /// Waits until the revision has had no call for its idle timeout, and puts it to zero.
    async fn rest(self: Arc<Self>) {
        let idle = self.config.idle_timeout;
        let mut look = Instant::now() + idle;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(look) => {}
                () = self.drained() => {}
            }
            let rested = {
                let mut state = self.state();
                let State::Ready(awake) = &*state else { return };
                let due = *awake.last_used() + idle;
                if (self.removed.is_cancelled() && self.calls.is_empty())
                    || (awake.active.load(Ordering::Acquire) == 0 && due <= Instant::now())
                {
                    std::mem::take(&mut *state)
                } else {
                    look = due.max(Instant::now() + idle.min(Duration::from_secs(1)));
                    continue;
                }
            };
            if let State::Ready(awake) = &rested
                && let Some(cold) = self.last_cold_start()
            {
                cold.graph.store(awake.models.loading(), Ordering::Relaxed);
            }
            // Unmapping and freeing take a moment; they need not hold up this thread's other tasks.
            let _ = tokio::task::spawn_blocking(move || drop(rested)).await;
            self.log.rest();
            return;
        }
    }
}
