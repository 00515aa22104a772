//! What one call has used so far, written down by whoever gave it.
//!
//! A call opens a bill when it begins and takes what is on it for its record when its answer ends. Its sandbox and the tabs of its
//! inferences hold the bill for longer: what they write after that is the rest, which the last of them to go leaves with those
//! of the revision's other calls ([`Rest`]). So each quantity is in one record, and none is in two.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use weir_gpu::{Error, Inference, Tab, Used};

use super::record::{Record, Use};
use super::rest::Rest;
use crate::function::nanos;
use crate::sandbox::memory::Account;
use crate::sandbox::meter::Meter as CpuMeter;
use crate::trace::recording::{Inference as InferenceSpan, What, variant};
use crate::trace::{Link, Recording};

/// Nanoseconds of a millisecond.
const MILLI: u128 = 1_000_000;

/// What a call has used, and is not in a record yet.
#[derive(Debug, Default)]
pub struct Amounts {
    pub held_ns: u64,
    pub startup_ns: u64,
    pub cold_starts: u64,
    pub cold_code_ns: u64,
    pub cold_sandbox_ns: u64,
    pub guest_cpu_ns: u64,
    pub request_bytes: u64,
    pub egress_bytes: u64,
    /// How long it waited for lanes, and for jobs that had one.
    pub queue_ns: u64,
    pub inference_ns: u64,
    /// Bytes of host memory × nanoseconds.
    pub host_byte_ns: u128,
    pub uses: Vec<Of>,
}

/// What it has used of one device with one model.
#[derive(Debug, Default)]
pub struct Of {
    /// But for memory over time.
    used: Use,
    /// Bytes of the device's memory × nanoseconds.
    byte_ns: u128,
}

/// The sandbox that a call is in.
struct Source {
    cpu: Arc<CpuMeter>,
    /// Nanoseconds of it that are on the bill.
    seen: u64,
    memory: Arc<Account>,
}

#[derive(Default)]
struct State {
    amounts: Amounts,
    source: Option<Source>,
}

impl State {
    /// The sandbox is done with the call, if it was not before.
    fn leave(&mut self, spent: impl FnOnce(&CpuMeter) -> Duration) {
        if let Some(Source { cpu, seen, memory }) = self.source.take() {
            self.amounts.guest_cpu_ns += nanos(spent(&cpu)).saturating_sub(seen);
            self.amounts.host_byte_ns += memory.take_held();
        }
    }
}

/// A call's bill.
pub struct Bill {
    key: Option<Arc<str>>,
    rest: Arc<Rest>,
    /// What it was for, and when.
    trace: Recording,
    state: Mutex<State>,
}

impl Bill {
    /// A bill for a call that came with this key. What it leaves is added to `rest`, which says whose it is.
    pub fn open(key: Option<Arc<str>>, rest: Arc<Rest>, trace: Recording) -> Arc<Self> {
        Arc::new(Self { key, rest, trace, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes something down.
    pub fn add(&self, write: impl FnOnce(&mut Amounts)) {
        write(&mut self.state().amounts);
    }

    /// The call is in this sandbox from now on, which has computed for so long before: to start, if it is the first call.
    pub fn enter(&self, start: Duration, cpu: Arc<CpuMeter>, memory: Arc<Account>) {
        let mut state = self.state();
        state.amounts.guest_cpu_ns += nanos(start);
        // What the sandbox had while it waited for a call is the call's that it waited for.
        state.source = Some(Source { cpu, seen: 0, memory });
    }

    /// The sandbox is done with the call, for which it has computed for so long.
    pub fn leave(&self, spent: Duration) {
        self.state().leave(|_| spent);
    }

    /// What loading and running a model on a device is written on. What nobody takes of it comes here.
    pub fn tab(self: &Arc<Self>, device: &Arc<str>, model: &Arc<str>) -> Arc<Tab> {
        let (bill, device, model) = (Arc::clone(self), Arc::clone(device), Arc::clone(model));
        let tab =
            Tab::new(move |rest| bill.add(|amounts| amounts.of(&device, &model, |of| of.take_over(rest))));
        Arc::new(tab.marked(self.trace.mark()))
    }

    /// An inference was answered.
    pub fn inferred(&self, device: &Arc<str>, model: &Arc<str>, inference: &Inference, waited: Duration) {
        let Inference { cost, with, .. } = inference;
        self.add(|amounts| {
            amounts.queue_ns += nanos(cost.queued);
            amounts.inference_ns += nanos(waited.saturating_sub(cost.queued));
            amounts.of(device, model, |of| {
                of.used.inferences += 1;
                of.used.queue_ns += nanos(cost.queued);
                of.used.rows += cost.rows;
                of.used.batch_rows += cost.batch;
                of.used.padding_rows += cost.padding;
                of.take_over(cost.used);
            });
        });
        self.ran(device, model, waited, |inference| {
            let own = self.trace.mark();
            let others = with.iter().filter(|mark| Some(**mark) != own);
            inference.links = others.map(Link::of).collect();
            inference.queue_ns = nanos(cost.queued);
            inference.device_ns = cost.used.device;
            (inference.rows, inference.batch_rows) = (cost.rows, cost.batch);
            inference.padding_rows = cost.padding;
            inference.operators = cost.used.operators;
        });
    }

    /// An inference was not answered. What it took comes from its tab.
    pub fn failed(&self, device: &Arc<str>, model: &Arc<str>, waited: Duration, error: &Error) {
        self.add(|amounts| {
            amounts.inference_ns += nanos(waited);
            amounts.of(device, model, |of| of.used.failed_inferences += 1);
        });
        self.ran(device, model, waited, |inference| inference.error = Some(variant(error).into()));
    }

    /// The trace has an inference that ended now.
    fn ran(
        &self,
        device: &Arc<str>,
        model: &Arc<str>,
        waited: Duration,
        say: impl FnOnce(&mut InferenceSpan),
    ) {
        let now = Instant::now();
        self.trace.span(now.checked_sub(waited).unwrap_or(now), now, || {
            let (device, model) = (Arc::clone(device), Arc::clone(model));
            let mut inference = InferenceSpan { device, model, ..InferenceSpan::default() };
            say(&mut inference);
            What::Inference(Box::new(inference))
        });
    }

    /// The guest waited for a graph.
    pub fn waited_for_graph(&self, device: &Arc<str>, model: &Arc<str>, waited: Duration) {
        self.add(|amounts| amounts.startup_ns += nanos(waited));
        let now = Instant::now();
        self.trace.waited(now.checked_sub(waited).unwrap_or(now), now, || What::Load {
            device: Arc::clone(device),
            model: Arc::clone(model),
        });
    }

    /// Puts all that is on the bill into a record, which is then not on it any more. Fractions of units stay.
    pub fn take(&self, record: &mut Record) {
        let mut state = self.state();
        let State { amounts, source } = &mut *state;
        if let Some(Source { cpu, seen, memory }) = source {
            // Up to the last time that the guest was left.
            let left = cpu.left();
            amounts.guest_cpu_ns += left.saturating_sub(*seen);
            *seen = left.max(*seen);
            amounts.host_byte_ns += memory.take_held();
        }
        self.rest.sign(record);
        record.key = self.key.clone();
        amounts.take(record);
    }
}

impl Drop for Bill {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.leave(CpuMeter::spent);
        self.rest.add(std::mem::take(&mut state.amounts));
    }
}

impl Of {
    fn take_over(&mut self, tab: Used) {
        let Used { device, load, loads, operators, peak, byte_ns } = tab;
        self.used.device_ns += device;
        self.used.load_ns += load;
        self.used.loads += loads;
        self.used.operators += operators;
        self.used.peak_bytes = self.used.peak_bytes.max(peak);
        self.byte_ns += byte_ns;
    }

    /// What of it goes into a record. What stays is less than a byte × millisecond.
    fn take(&mut self) -> Use {
        let nothing = nothing(&self.used.device, &self.used.model);
        let mut used = std::mem::replace(&mut self.used, nothing);
        used.memory_byte_ms = whole(&mut self.byte_ns);
        used
    }
}

impl Amounts {
    /// What is used of one device with one model.
    fn of(&mut self, device: &Arc<str>, model: &Arc<str>, write: impl FnOnce(&mut Of)) {
        let found = self.uses.iter_mut().find(|of| of.used.device == *device && of.used.model == *model);
        match found {
            Some(of) => write(of),
            None => {
                let mut of = Of { used: nothing(device, model), byte_ns: 0 };
                write(&mut of);
                self.uses.push(of);
            }
        }
    }

    /// Adds what another call has left.
    pub fn add(&mut self, other: Self) {
        self.held_ns += other.held_ns;
        self.startup_ns += other.startup_ns;
        self.cold_starts += other.cold_starts;
        self.cold_code_ns += other.cold_code_ns;
        self.cold_sandbox_ns += other.cold_sandbox_ns;
        self.guest_cpu_ns += other.guest_cpu_ns;
        self.request_bytes += other.request_bytes;
        self.egress_bytes += other.egress_bytes;
        self.queue_ns += other.queue_ns;
        self.inference_ns += other.inference_ns;
        self.host_byte_ns += other.host_byte_ns;
        for other in other.uses {
            self.of(&other.used.device, &other.used.model, |of| {
                of.used.add(&other.used);
                of.byte_ns += other.byte_ns;
            });
        }
    }

    /// Moves all whole units into a record.
    pub fn take(&mut self, record: &mut Record) {
        let take = std::mem::take::<u64>;
        record.held_ns = take(&mut self.held_ns);
        record.startup_ns = take(&mut self.startup_ns);
        record.queue_ns = take(&mut self.queue_ns);
        record.inference_ns = take(&mut self.inference_ns);
        record.cold_starts = take(&mut self.cold_starts);
        record.cold_code_ns = take(&mut self.cold_code_ns);
        record.cold_sandbox_ns = take(&mut self.cold_sandbox_ns);
        record.guest_cpu_ns = take(&mut self.guest_cpu_ns);
        record.request_bytes = take(&mut self.request_bytes);
        record.egress_bytes = take(&mut self.egress_bytes);
        record.host_memory_byte_ms = whole(&mut self.host_byte_ns);
        let uses = self.uses.iter_mut().map(Of::take);
        record.uses = uses.filter(|used| *used != nothing(&used.device, &used.model)).collect();
    }
}

/// A use that says nothing but what it is of.
fn nothing(device: &Arc<str>, model: &Arc<str>) -> Use {
    Use { device: Arc::clone(device), model: Arc::clone(model), ..Use::default() }
}

/// Takes the whole byte × milliseconds.
pub fn whole(byte_ns: &mut u128) -> u64 {
    let whole = u64::try_from(*byte_ns / MILLI).unwrap_or(u64::MAX);
    *byte_ns -= u128::from(whole) * MILLI;
    whole
}
