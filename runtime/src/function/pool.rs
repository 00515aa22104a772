//! The sandboxes of one awake revision.
//!
//! A call gets an idle sandbox, or a new one, which then is a task of its own and serves one call at a time. It ends
//! with its last call, when a call's time is up or its client goes away, when the guest traps or meets a limit, when
//! its function goes to zero, or, idle, when another function wants a sandbox and the machine has no more. After
//! anything but an ordinary answer it is never used again.
//!
//! Two clocks watch a guest: the engine's epochs, at which a spinning one yields and is asked what it has computed, and
//! the task around it, which sees the call's end whatever the guest does or waits for.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wasmtime::component::Accessor;
use wasmtime::{AsContextMut, Engine, PoolConcurrencyLimitError, Store};
use wasmtime_wasi_http::handler::{Prepared, Proxy, ProxyPre};
use wasmtime_wasi_http::{WasiBody, WasiHttpView};

use super::wake::{ColdStart, Use, nanos};
use crate::admission::{self, Admitted, Permit};
use crate::limits::{Exceeded, Limit};
use crate::meter::bill::Bill;
use crate::sandbox::met::{self, Met};
use crate::sandbox::meter::Meter;
use crate::sandbox::store::{self, Common, Host, computed};
use crate::telemetry::Telemetry;
use crate::trace::Recording;
use crate::trace::recording::What;

/// How long a new sandbox waits for idle ones to leave, and how often.
const SHORT_WAIT: Duration = Duration::from_millis(5);
const SHORT_WAITS: usize = 20;

/// What the pool of one awake revision is made of.
pub struct Pool {
    pub engine: Engine,
    pub pre: ProxyPre<Host>,
    pub common: Common,
    /// Calls that one sandbox serves.
    pub reuse: u32,
    pub startup_timeout: Duration,
    pub idle_timeout: Duration,
    /// The node's sandboxes, and who takes of them.
    pub sandboxes: Arc<admission::Pool>,
    pub tenant: Arc<str>,
    pub cold: Arc<ColdStart>,
    pub telemetry: Arc<Telemetry>,
    /// Cancelled when the function goes to zero.
    pub retired: CancellationToken,
    /// Where idle sandboxes wait for their next call, the last used last.
    pub idle: Mutex<Vec<oneshot::Sender<Work>>>,
}

/// One call, as it goes to its sandbox; what it holds comes back when the sandbox is done with it.
pub struct Ticket {
    pub number: u64,
    /// Which trace it is part of, and what is collected of it.
    pub trace: Recording,
    /// How long it may take, from its sandbox's start.
    pub patience: Duration,
    /// Cancelled when the call failed or nobody waits for its answer any more: the sandbox ends.
    pub gone: CancellationToken,
    /// Cancelled when the function has answered. Until then the sandbox is not used again.
    pub answered: CancellationToken,
    /// Where what it uses is written.
    pub bill: Option<Arc<Bill>>,
    /// Told why the sandbox ended, if it was not by an ordinary answer.
    pub ended: oneshot::Sender<End>,
    /// One of the function's and of the tenant's calls that may run.
    pub _permit: Admitted,
    /// Keeps the revision awake.
    pub _awake: Use,
}

/// A call on its way into a sandbox.
pub struct Work {
    request: Request<WasiBody>,
    ticket: Ticket,
    answer: futures::channel::oneshot::Sender<wasmtime::Result<Response<WasiBody>>>,
}

/// Why a sandbox ended in the middle of a call.
#[derive(Debug)]
pub enum End {
    /// The guest trapped, or the host failed under it.
    Failed(String),
    /// A limit was met.
    Exceeded(Exceeded),
    /// The engine had no place left for what the guest needed.
    NoPlace,
    /// The guest returned, after it was refused something: if it gave no answer, this may be why.
    Returned(Exceeded),
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    #[error("all sandboxes of this machine are in use")]
    AllInUse,
    /// No sandbox could be made within a limit.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    #[error("the function cannot start: {0}")]
    NoStart(String),
    /// The sandbox ended or the guest returned without one: the ticket's `ended` says more.
    #[error("the function ended")]
    Ended,
}

/// A sandbox that no guest has run in but for its start.
struct Sandbox {
    store: Store<Host>,
    proxy: Proxy,
    /// One of the node's sandboxes. It outlives the store, whose place in the engine's pool it stands for.
    permit: Permit,
}

impl Pool {
    /// Runs a call in a sandbox, up to its answer's head. Dropping it before that takes the call out of the queue for
    /// a sandbox; `ticket.gone` ends it from there on.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn call(
        self: &Arc<Self>,
        request: Request<WasiBody>,
        ticket: Ticket,
    ) -> Result<Response<WasiBody>, NoAnswer> {
        let (answer, answered) = futures::channel::oneshot::channel();
        let mut work = Work { request, ticket, answer };
        loop {
            let Some(idle) = self.idle().pop() else {
                let sandbox = self.start(Some(&work.ticket)).await?;
                // In a box: as it is, it would be moved several times on its way into the task.
                tokio::spawn(Box::pin(Arc::clone(self).live(sandbox, work)));
                break;
            };
            match idle.send(work) {
                Ok(()) => break,
                // That one has ended meanwhile.
                Err(back) => work = back,
            }
        }
        match answered.await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(_)) | Err(_) => Err(NoAnswer::Ended),
        }
    }

    /// Makes a sandbox that no call gets.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn try_start(&self) -> Result<(), NoAnswer> {
        self.start(None).await.map(drop)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<oneshot::Sender<Work>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new sandbox, as soon as the node has one. How long that takes is written on the bill of the call that wants it.
    async fn start(&self, call: Option<&Ticket>) -> Result<Sandbox, NoAnswer> {
        let bill = call.and_then(|call| call.bill.as_ref());
        let asked = Instant::now();
        let start_by = Instant::now() + self.startup_timeout;
        let permit =
            self.sandboxes.enter(&self.tenant, self.startup_timeout).await.ok_or(NoAnswer::AllInUse)?;
        let started = Instant::now();
        if let Some(bill) = bill {
            bill.add(|amounts| amounts.held_ns += nanos(started - asked));
        }
        if let Some(call) = call {
            call.trace.waited(asked, started, || What::Held);
        }
        let mut store = self.store(start_by).await?;
        let (meter, met) = (store.data().meter(), store.data().met.clone());
        let start = meter.metered(self.pre.instantiate_async(&mut store));
        let proxy = match tokio::time::timeout_at(start_by, start).await {
            Ok(Ok(proxy)) => proxy,
            Ok(Err(error)) if error.is::<PoolConcurrencyLimitError>() => {
                // Idle ones hold more places than sandboxes; the next call finds those that they leave.
                self.common.memory.press();
                return Err(NoAnswer::AllInUse);
            }
            Ok(Err(error)) => {
                let reason = first_line(&error);
                let exceeded = met::exceeded(&error, &self.common.engines());
                if let Some(exceeded) = &exceeded {
                    met.note(exceeded.clone());
                }
                store.data().log.note(format!("the function cannot start: {reason}"));
                return Err(exceeded.or(met.last()).map_or(NoAnswer::NoStart(reason), NoAnswer::Exceeded));
            }
            Err(_) => {
                let most = humantime::format_duration(self.startup_timeout);
                let slow =
                    Exceeded::new(Limit::StartTime, format!("the component did not start within {most}"));
                met.note(slow.clone());
                return Err(slow.into());
            }
        };
        let took = started.elapsed();
        let is_first = self.cold.first_sandbox(took);
        if is_first {
            self.telemetry.cold_start_sandbox(took);
        }
        if let Some(bill) = bill {
            bill.add(|amounts| {
                amounts.startup_ns += nanos(took);
                amounts.cold_sandbox_ns += if is_first { nanos(took) } else { 0 };
            });
        }
        if let Some(call) = call {
            call.trace.waited(started, started + took, || What::Sandbox);
        }
        Ok(Sandbox { store, proxy, permit })
    }

    /// A store for a new sandbox. When memory is short, idle sandboxes leave, and it waits for that a moment.
    async fn store(&self, start_by: Instant) -> Result<Store<Host>, Exceeded> {
        for _ in 0..SHORT_WAITS {
            match store::new_store(&self.engine, &self.common) {
                Ok(store) => return Ok(store),
                Err(_) if self.common.memory.idle() > 0 && Instant::now() < start_by => {
                    tokio::time::sleep(SHORT_WAIT).await;
                }
                Err(_) => break,
            }
        }
        store::new_store(&self.engine, &self.common).inspect_err(|exceeded| {
            self.telemetry.limit(exceeded.limit);
            tracing::warn!(%exceeded, "no memory for another sandbox");
        })
    }

    /// A sandbox's life.
    async fn live(self: Arc<Self>, sandbox: Sandbox, first: Work) {
        let Sandbox { mut store, proxy, permit } = sandbox;
        let (meter, met) = (store.data().meter(), store.data().met.clone());
        let current = Current::default();
        let ending = {
            let guest = async |accessor: &Accessor<Host>| self.serve(accessor, &proxy, &current, first).await;
            let mut guest = pin!(store.run_concurrent(guest));
            let mut watch =
                Watch { meter: &meter, met: &met, cpu_time: self.common.limits.cpu_time, wait: None };
            std::future::poll_fn(|cx| match meter.poll(guest.as_mut(), cx) {
                Poll::Ready(result) => Poll::Ready(Ending::Returned(result.flatten())),
                Poll::Pending => watch.poll(&current, cx),
            })
            .await
        };
        let host = store.data();
        host.log.finish();
        let call = current.lock().take();
        let end = match ending {
            Ending::Returned(Ok(())) => host.met.last().map(End::Returned),
            Ending::Returned(Err(error)) if error.is::<PoolConcurrencyLimitError>() => {
                self.common.memory.press();
                host.log.note("the machine had no place left for what the guest needed".to_owned());
                Some(End::NoPlace)
            }
            Ending::Returned(Err(error)) => {
                let reason = first_line(&error);
                if let Some(exceeded) = met::exceeded(&error, &self.common.engines()) {
                    host.met.note(exceeded);
                }
                host.log.note(format!("the sandbox was ended: {reason}"));
                Some(host.met.last().map_or(End::Failed(reason), End::Exceeded))
            }
            Ending::Exceeded(exceeded) => {
                host.met.note(exceeded.clone());
                Some(End::Exceeded(exceeded))
            }
            // Nobody waits, or whoever got no answer wants to know why.
            Ending::Gone => host.met.last().map(End::Returned),
        };
        if let (Some(end), Some(call)) = (end, call) {
            // The caller may have its answer already, and nobody is there to tell.
            let _ = call.ticket.ended.send(end);
        }
        // Only now the guest's open bodies close: whoever reads them has been told.
        drop(store);
        drop(permit);
    }

    /// Serves calls one after another, as many as one sandbox may.
    async fn serve(
        &self,
        accessor: &Accessor<Host>,
        proxy: &Proxy,
        current: &Current,
        mut work: Work,
    ) -> wasmtime::Result<()> {
        for left in (0..self.reuse).rev() {
            let Work { request, ticket, answer } = work;
            let deadline = Instant::now() + ticket.patience;
            let answered = ticket.answered.clone();
            let prepared = accessor.with(|mut store| {
                let mut store = store.as_context_mut();
                store.data_mut().begin(ticket.number, deadline, ticket.bill.clone(), ticket.trace.clone());
                Prepared::new(store, proxy, request, WasiHttpView::http, answer)
            });
            *current.lock() = Some(Running { ticket, deadline });
            // The call's end is seen from outside the guest, by `Watch`.
            prepared?.run(accessor, std::future::pending()).await?;
            std::future::poll_fn(|cx| accessor.poll_no_interesting_tasks(cx)).await;
            if left == 0 {
                // The sandbox ends here, and with it the call's hold on its bill.
                break;
            }
            accessor.with(|mut store| store.as_context_mut().data_mut().end());
            // The guest is done, but whether it answered is known only when its answer has arrived.
            answered.cancelled().await;
            match self.next(current).await {
                Some(next) => work = next,
                None => break,
            }
        }
        Ok(())
    }

    /// Waits, idle, for the next call.
    async fn next(&self, current: &Current) -> Option<Work> {
        let (sender, mut receiver) = oneshot::channel();
        let _idle = self.common.memory.count_idle();
        self.idle().push(sender);
        // What the call held goes back only now, so that the next call finds this sandbox.
        drop(current.lock().take());
        let unwanted = async {
            tokio::select! {
                () = self.retired.cancelled() => {}
                () = self.sandboxes.wanted(&self.tenant) => {}
                () = self.common.memory.pressed() => {}
                () = tokio::time::sleep(self.idle_timeout) => {}
            }
        };
        tokio::select! {
            work = &mut receiver => work.ok(),
            () = unwanted => {
                // A call may have come at the last moment.
                receiver.close();
                let work = receiver.try_recv().ok();
                if work.is_some() {
                    // Another idle one must go in this one's place.
                    self.sandboxes.pass_on();
                }
                self.idle().retain(|idle| !idle.is_closed());
                work
            }
        }
    }
}

/// The call that a sandbox serves now.
#[derive(Default)]
struct Current(Mutex<Option<Running>>);

impl Current {
    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Running {
    ticket: Ticket,
    deadline: Instant,
}

/// How a sandbox's life ended.
enum Ending {
    /// By itself: after its last call, idle, or with a trap.
    Returned(wasmtime::Result<()>),
    Exceeded(Exceeded),
    /// Nobody waits for the call's answer.
    Gone,
}

/// What a guest's failure says about itself, without the addresses.
pub fn first_line(error: &wasmtime::Error) -> String {
    error.root_cause().to_string().lines().next().unwrap_or("no reason given").to_owned()
}

/// Sees a call's end from outside the guest, so that neither a spinning nor a waiting one can put it off.
struct Watch<'a> {
    meter: &'a Meter,
    met: &'a Met,
    cpu_time: Duration,
    /// By the call's number, until its time is up or nobody waits for it.
    wait: Option<(u64, Wait)>,
}

impl Watch<'_> {
    fn poll(&mut self, current: &Current, cx: &mut Context<'_>) -> Poll<Ending> {
        let current = current.lock();
        let Some(call) = current.as_ref() else { return Poll::Pending };
        // A guest that waits often may never be seen at a tick of the epoch.
        if let Err(exceeded) = self.met.overdrawn().and_then(|()| computed(self.meter, self.cpu_time)) {
            return Poll::Ready(Ending::Exceeded(exceeded));
        }
        let number = call.ticket.number;
        let (waited, wait) = self.wait.get_or_insert_with(|| (number, end_of(call)));
        if *waited != number {
            (*waited, *wait) = (number, end_of(call));
        }
        wait.as_mut().poll(cx)
    }
}

type Wait = Pin<Box<dyn Future<Output = Ending> + Send>>;

fn end_of(call: &Running) -> Wait {
    let (gone, deadline, patience) = (call.ticket.gone.clone(), call.deadline, call.ticket.patience);
    Box::pin(async move {
        tokio::select! {
            () = gone.cancelled_owned() => Ending::Gone,
            () = tokio::time::sleep_until(deadline) => {
                let most = humantime::format_duration(patience);
                let detail = format!("the call was not done within {most}: its time was up");
                Ending::Exceeded(Exceeded::new(Limit::RequestTime, detail))
            }
        }
    })
}
