//! The sandboxes of one awake revision.
//!
//! `wasmtime_wasi_http`'s handler drives guests of both `wasi:http` versions; this is what it asks of its host: how a
//! sandbox is made, how many calls it serves, and when it ends. A sandbox serves one call at a time. It ends with its
//! last call, when a call's deadline passes or its client goes away, when the guest traps, when its function goes to
//! zero, or, idle, when another function wants a sandbox and the machine has no more. After anything but an ordinary
//! answer it is never used again.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use wasmtime::component::GuestTaskId;
use wasmtime::{Engine, Store, StoreContextMut};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::handler::{
    HandlerState, Instance, ProxyPre, ShouldAccept, WorkerExpiration, WorkerState, WorkerStatus,
};

use super::wake::{ColdStart, Use};
use crate::admission::Sandboxes;
use crate::sandbox::store::{self, Common, Host};
use crate::telemetry::Telemetry;

/// What the pool of one awake revision is made of.
pub struct Pool {
    pub engine: Engine,
    pub pre: ProxyPre<Host>,
    pub common: Common,
    /// Calls that one sandbox serves.
    pub reuse: usize,
    pub startup_timeout: Duration,
    pub idle_timeout: Duration,
    /// The node's sandboxes.
    pub sandboxes: Arc<Sandboxes>,
    pub cold: Arc<ColdStart>,
    pub telemetry: Arc<Telemetry>,
    /// Cancelled when the function goes to zero.
    pub retired: CancellationToken,
}

/// One call, as it goes to its sandbox; what it holds comes back when the sandbox is done with it.
pub struct Ticket {
    pub number: u64,
    /// How long it may take, from its sandbox's start.
    pub patience: Duration,
    /// Cancelled when the call failed or nobody waits for its answer any more: the sandbox ends.
    pub gone: CancellationToken,
    /// Cancelled when the function has answered. Until then the sandbox is not used again.
    pub answered: CancellationToken,
    /// Told why the sandbox ended, if it was not by an ordinary answer.
    pub ended: oneshot::Sender<End>,
    /// One of the function's calls that may run.
    pub _permit: OwnedSemaphorePermit,
    /// Keeps the revision awake.
    pub _awake: Use,
}

/// Why a sandbox ended in the middle of a call.
#[derive(Debug)]
pub enum End {
    /// The guest trapped, or the host failed under it.
    Failed(String),
    /// The call's deadline passed.
    TimedOut,
}

/// Why no sandbox could be made.
#[derive(Debug, thiserror::Error)]
pub enum NoSandbox {
    #[error("all sandboxes of this machine are in use")]
    AllInUse,
    #[error("the component did not start within {}", humantime::format_duration(*.0))]
    Slow(Duration),
}

impl HandlerState for Pool {
    type StoreData = Host;
    type WorkerExpiration = Expiry;
    type WorkerState = Sandbox;

    async fn instantiate(&self) -> wasmtime::Result<Instance<Host, Expiry, Sandbox>> {
        let start_by = Instant::now() + self.startup_timeout;
        let permit = self
            .sandboxes
            .enter(self.startup_timeout)
            .await
            .map_err(|_| wasmtime::Error::new(NoSandbox::AllInUse))?;
        let started = Instant::now();
        let mut store = store::new_store(&self.engine, &self.common, self.telemetry.sandbox());
        let proxy = tokio::time::timeout_at(start_by, self.pre.instantiate_async(&mut store))
            .await
            .map_err(|_| wasmtime::Error::new(NoSandbox::Slow(self.startup_timeout)))??;
        if self.cold.first_sandbox(started.elapsed()) {
            self.telemetry.cold_start_sandbox(started.elapsed());
        }
        let current = Arc::new(Current::default());
        Ok(Instance {
            store,
            proxy,
            view: WasiHttpView::http,
            expiration: Expiry {
                current: Arc::clone(&current),
                wait: None,
                answered: None,
                idle: None,
                retired: self.retired.clone(),
                sandboxes: Arc::clone(&self.sandboxes),
                idle_timeout: self.idle_timeout,
            },
            state: Sandbox { current, reuse: self.reuse, _permit: permit },
        })
    }
}

/// The call that a sandbox serves now, or served last.
#[derive(Default)]
struct Current {
    running: Mutex<Option<Running>>,
    /// Whether the sandbox has been offered for another call since its last one answered.
    offered: AtomicBool,
    /// Whether the sandbox was ended from outside.
    expired: AtomicBool,
}

impl Current {
    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Running {
    ticket: Ticket,
    deadline: Instant,
}

/// Decides how many calls a sandbox serves, and sees it end.
pub struct Sandbox {
    current: Arc<Current>,
    reuse: usize,
    /// One of the node's sandboxes. It outlives the store, whose place in the engine's pool it stands for.
    _permit: OwnedSemaphorePermit,
}

type Wait = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// Until nobody waits for a call's answer, or its time is up.
fn end_of(call: &Running) -> Wait {
    let (gone, deadline) = (call.ticket.gone.clone(), call.deadline);
    Box::pin(async move {
        tokio::select! {
            () = gone.cancelled_owned() => {}
            () = tokio::time::sleep_until(deadline) => {}
        }
    })
}

impl WorkerState for Sandbox {
    type StoreData = Host;
    type RequestData = Ticket;

    fn should_accept_request(&self, running: usize, served: usize) -> ShouldAccept {
        let current = self.current.lock();
        let (gone, answered) = current.as_ref().map_or((false, true), |last| {
            (last.ticket.gone.is_cancelled(), last.ticket.answered.is_cancelled())
        });
        if served >= self.reuse || gone {
            ShouldAccept::Never
        } else if running > 0 || !answered {
            ShouldAccept::No
        } else {
            self.current.offered.store(true, Ordering::Relaxed);
            ShouldAccept::Yes
        }
    }

    fn on_request_start(&self, mut store: StoreContextMut<'_, Host>, ticket: Ticket, _: GuestTaskId) -> Wait {
        let deadline = Instant::now() + ticket.patience;
        store.data_mut().begin(ticket.number, deadline);
        *self.current.lock() = Some(Running { ticket, deadline });
        self.current.offered.store(false, Ordering::Relaxed);
        // The call's end is seen from outside the guest, by `Expiry`.
        Box::pin(std::future::pending())
    }

    fn drop(&self, store: Store<Host>, result: wasmtime::Result<()>) {
        let log = store.data().log.clone();
        log.finish();
        let last = self.current.lock().take();
        let expired = self.current.expired.load(Ordering::Relaxed);
        if let Err(error) = result {
            let end = if !expired {
                let reason = first_line(&error);
                log.note(format!("the sandbox was ended: {reason}"));
                Some(End::Failed(reason))
            } else if last.as_ref().is_some_and(|call| call.deadline <= Instant::now()) {
                log.note("the call was ended: its time was up".to_owned());
                Some(End::TimedOut)
            } else {
                None
            };
            if let (Some(end), Some(call)) = (end, last) {
                // The caller may have its answer already, and nobody is there to tell.
                let _ = call.ticket.ended.send(end);
            }
        }
        // Only now the guest's open bodies close: whoever reads them has been told.
        drop(store);
    }
}

/// What a guest's failure says about itself, without the addresses.
pub fn first_line(error: &wasmtime::Error) -> String {
    error.root_cause().to_string().lines().next().unwrap_or("no reason given").to_owned()
}

/// Decides when a sandbox ends, from outside the guest, so that neither a spinning nor a waiting one can put it off.
pub struct Expiry {
    current: Arc<Current>,
    wait: Option<(u64, Wait)>,
    answered: Option<Wait>,
    /// Until the function goes to zero or another function wants a sandbox; until it has waited long enough for a call.
    idle: Option<(Wait, Pin<Box<Sleep>>)>,
    retired: CancellationToken,
    sandboxes: Arc<Sandboxes>,
    idle_timeout: Duration,
}

impl WorkerExpiration for Expiry {
    fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        status: WorkerStatus,
        start: std::time::Instant,
    ) -> Poll<()> {
        let me = self.get_mut();
        match status {
            WorkerStatus::Idle => {
                let mut current = me.current.lock();
                if let Some(last) = current.as_ref() {
                    // The guest is done, but whether it answered is known only when its answer has arrived.
                    let answered = last.ticket.answered.clone();
                    let answered = me.answered.get_or_insert_with(|| Box::pin(answered.cancelled_owned()));
                    if answered.as_mut().poll(cx).is_pending() {
                        drop(current);
                        return me.poll_end(cx);
                    }
                    if !me.current.offered.load(Ordering::Relaxed) {
                        // The answer arrived after the handler asked whether there may be another call: it must ask
                        // again, and only then the call's permit goes back, so that the next call finds this sandbox.
                        cx.waker().wake_by_ref();
                        drop(current);
                        return me.poll_end(cx);
                    }
                    // What the call held goes back while the sandbox waits for the next one.
                    current.take();
                    me.answered = None;
                    me.wait = None;
                }
                drop(current);
                let end = Instant::from_std(start) + me.idle_timeout;
                let (retired, sandboxes) = (&me.retired, &me.sandboxes);
                let (unwanted, idle) = me.idle.get_or_insert_with(|| {
                    let (retired, sandboxes) = (retired.clone(), Arc::clone(sandboxes));
                    let unwanted = async move {
                        tokio::select! {
                            () = retired.cancelled() => {}
                            () = sandboxes.wanted() => {}
                        }
                    };
                    (Box::pin(unwanted), Box::pin(tokio::time::sleep_until(end)))
                });
                if idle.deadline() != end {
                    idle.as_mut().reset(end);
                }
                if unwanted.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { idle.as_mut().poll(cx) }
            }
            WorkerStatus::Requests | WorkerStatus::PostReturn => me.poll_end(cx),
        }
    }
}

impl Expiry {
    /// Whether the current call's time is up or its client gone.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let current = self.current.lock();
        let Some(call) = current.as_ref() else { return Poll::Pending };
        let number = call.ticket.number;
        if self.wait.as_ref().is_none_or(|(waited, _)| *waited != number) {
            self.wait = Some((number, end_of(call)));
        }
        drop(current);
        let Some((_, wait)) = &mut self.wait else { return Poll::Pending };
        let end = wait.as_mut().poll(cx);
        if end.is_ready() {
            self.current.expired.store(true, Ordering::Relaxed);
        }
        end
    }
}
