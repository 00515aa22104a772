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
    /// Bytes of host memory × nanoseconds.
    pub host_byte_ns: u128,
    pub uses: Vec<Of>,
}

/// What it has used of one device with one model.
#[derive(Debug, Default)]
pub struct Of {
    pub device: Arc<str>,
    pub model: Arc<str>,
    pub inferences: u64,
    pub failed_inferences: u64,
    pub queue_ns: u64,
    /// How long it waited for jobs that had a lane, and for graphs.
    pub inference_ns: u64,
    pub startup_ns: u64,
    pub rows: u64,
    pub batch_rows: u64,
    pub padding_rows: u64,
    pub used: Used,
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

    /// The call is in this sandbox from now on.
    pub fn enter(&self, cpu: Arc<CpuMeter>, memory: Arc<Account>) {
        // What the sandbox had while it waited for a call is the call's that it waited for.
        self.state().source = Some(Source { cpu, seen: 0, memory });
    }

    /// The sandbox is done with the call. To be called on the guest's own thread.
    pub fn leave(&self) {
        let mut state = self.state();
        if let Some(Source { cpu, seen, memory }) = state.source.take() {
            state.amounts.guest_cpu_ns += nanos(cpu.spent()).saturating_sub(seen);
            state.amounts.host_byte_ns += memory.take_held();
        }
    }

    /// What loading and running a model on a device is written on. What nobody takes of it comes here.
    pub fn tab(self: &Arc<Self>, device: &Arc<str>, model: &Arc<str>) -> Arc<Tab> {
        let (bill, device, model) = (Arc::clone(self), Arc::clone(device), Arc::clone(model));
        let tab = Tab::new(move |rest| bill.of(&device, &model, |of| of.take_over(rest)));
        Arc::new(tab.marked(self.trace.mark()))
    }

    /// An inference was answered.
    pub fn inferred(&self, device: &Arc<str>, model: &Arc<str>, inference: &Inference, waited: Duration) {
        let Inference { cost, with, .. } = inference;
        self.of(device, model, |of| {
            of.inferences += 1;
            of.queue_ns += nanos(cost.queued);
            of.inference_ns += nanos(waited.saturating_sub(cost.queued));
            of.rows += cost.rows;
            of.batch_rows += cost.batch;
            of.padding_rows += cost.padding;
            of.take_over(cost.used);
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
        self.of(device, model, |of| {
            of.failed_inferences += 1;
            of.inference_ns += nanos(waited);
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
        self.of(device, model, |of| of.startup_ns += nanos(waited));
        let now = Instant::now();
        self.trace.waited(now.checked_sub(waited).unwrap_or(now), now, || What::Load {
            device: Arc::clone(device),
            model: Arc::clone(model),
        });
    }

    fn of(&self, device: &Arc<str>, model: &Arc<str>, write: impl FnOnce(&mut Of)) {
        let uses = &mut self.state().amounts.uses;
        let found = uses.iter().position(|of| of.device == *device && of.model == *model);
        let found = found.unwrap_or_else(|| {
            let (device, model) = (Arc::clone(device), Arc::clone(model));
            uses.push(Of { device, model, ..Of::default() });
            uses.len().saturating_sub(1)
        });
        if let Some(of) = uses.get_mut(found) {
            write(of);
        }
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
        self.leave();
        let amounts = std::mem::take(&mut self.state().amounts);
        self.rest.add(amounts);
    }
}

impl Of {
    fn take_over(&mut self, used: Used) {
        let mine = &mut self.used;
        mine.device += used.device;
        mine.load += used.load;
        mine.loads += used.loads;
        mine.operators += used.operators;
        mine.peak = mine.peak.max(used.peak);
        mine.byte_ns += used.byte_ns;
    }

    fn add(&mut self, other: Self) {
        self.inferences += other.inferences;
        self.failed_inferences += other.failed_inferences;
        self.queue_ns += other.queue_ns;
        self.inference_ns += other.inference_ns;
        self.startup_ns += other.startup_ns;
        self.rows += other.rows;
        self.batch_rows += other.batch_rows;
        self.padding_rows += other.padding_rows;
        self.take_over(other.used);
    }

    /// What of it goes into a record. What stays is less than a byte × millisecond.
    fn take(&mut self) -> Use {
        let Used { device, load, loads, operators, peak, .. } = self.used;
        let memory_byte_ms = whole(&mut self.used.byte_ns);
        let stays = self.used.byte_ns;
        let record = Use {
            device: Arc::clone(&self.device),
            model: Arc::clone(&self.model),
            inferences: self.inferences,
            failed_inferences: self.failed_inferences,
            device_ns: device,
            queue_ns: self.queue_ns,
            loads,
            load_ns: load,
            operators,
            peak_bytes: peak,
            memory_byte_ms,
            reserved_byte_ms: 0,
            rows: self.rows,
            batch_rows: self.batch_rows,
            padding_rows: self.padding_rows,
        };
        let (device, model) = (Arc::clone(&self.device), Arc::clone(&self.model));
        *self = Self { device, model, used: Used { byte_ns: stays, ..Used::default() }, ..Self::default() };
        record
    }
}

impl Amounts {
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
        self.host_byte_ns += other.host_byte_ns;
        for of in other.uses {
            match self.uses.iter_mut().find(|mine| mine.device == of.device && mine.model == of.model) {
                Some(mine) => mine.add(of),
                None => self.uses.push(of),
            }
        }
    }

    /// Moves all whole units into a record.
    pub fn take(&mut self, record: &mut Record) {
        let take = std::mem::take::<u64>;
        let waits = |of: &Of| [of.queue_ns, of.inference_ns, of.startup_ns];
        let sum = |[a, b, c]: [u64; 3], [d, e, f]: [u64; 3]| [a + d, b + e, c + f];
        let [queue, inference, startup] = self.uses.iter().map(waits).fold([0; 3], sum);
        record.held_ns = take(&mut self.held_ns);
        record.startup_ns = take(&mut self.startup_ns) + startup;
        (record.queue_ns, record.inference_ns) = (queue, inference);
        record.cold_starts = take(&mut self.cold_starts);
        record.cold_code_ns = take(&mut self.cold_code_ns);
        record.cold_sandbox_ns = take(&mut self.cold_sandbox_ns);
        record.guest_cpu_ns = take(&mut self.guest_cpu_ns);
        record.request_bytes = take(&mut self.request_bytes);
        record.egress_bytes = take(&mut self.egress_bytes);
        record.host_memory_byte_ms = whole(&mut self.host_byte_ns);
        record.uses = self.uses.iter_mut().map(Of::take).filter(|used| !is_nothing(used)).collect();
    }
}

/// Whether a use says nothing but what it is of.
fn is_nothing(used: &Use) -> bool {
    let (device, model) = (Arc::clone(&used.device), Arc::clone(&used.model));
    *used == Use { device, model, ..Use::default() }
}

/// Takes the whole byte × milliseconds.
pub fn whole(byte_ns: &mut u128) -> u64 {
    let whole = u64::try_from(*byte_ns / MILLI).unwrap_or(u64::MAX);
    *byte_ns -= u128::from(whole) * MILLI;
    whole
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
