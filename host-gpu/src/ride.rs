//! Requests that ride together: as rows of one batch, which one task drives.
//!
//! Whoever is first starts a train, and with it the task that waits for its lane. What comes out is split among those who
//! rode, and so is what it took. If a batch fails, each of its requests is run alone: one bad row must not fail its
//! neighbours, nor one tenant's quota another tenant's request. A request that rode with nobody, not even zeros, has been
//! run alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::Error;
use crate::error::nanos;
use crate::job::{EndOnDrop, Present, Took, Waiter};
use crate::residency::Resident;
use crate::sched::batch::{Filling, split};
use crate::sched::lane::{Request, TrainKey, Turn};
use crate::service::{Cost, Inner, Job, Lease, Service, no_longer_than, within};
use crate::tensor::Tensor;

/// What a request brings along.
pub(crate) struct Passenger {
    request: Request,
    inputs: Vec<Tensor>,
    gone: Arc<AtomicBool>,
    /// Tells that it does not wait for a lane any more.
    departs: oneshot::Sender<()>,
    answer: oneshot::Sender<Result<Answer, Error>>,
}

/// What a request gets, or that it is to be run alone.
type Answer = Option<(Vec<Tensor>, Cost)>;

impl Service {
    /// Runs a request together with others like it; nothing if it has to be run alone.
    pub(crate) async fn ride(
        &self,
        lease: &Lease,
        inputs: &[Tensor],
        rows: u64,
        job: Job,
    ) -> Result<Answer, Error> {
        let resident = lease.hold.resident();
        let row = inputs.iter().map(|input| input.shape().get(1..).unwrap_or_default().to_vec());
        let bytes = inputs.iter().map(|input| u64::try_from(input.data().len()).unwrap_or(u64::MAX));
        let bytes = bytes.fold(0, u64::saturating_add);
        let batching = lease.batching.fitting(bytes / rows.max(1));
        let key = TrainKey { graph: resident.id, row: row.collect(), batching };
        let (present, request) = (Present::default(), lease.request(Some(rows), inputs, job));
        let (departs, departed) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        let (gone, inputs) = (Arc::clone(&present.0), inputs.to_vec());
        let passenger = Passenger { request: request.clone(), inputs, gone, departs, answer };
        let asked = Instant::now();
        let (ticket, turn) = self.0.lanes.board(&request, key, passenger)?;
        if let Some(turn) = turn {
            tokio::spawn(drive(Arc::clone(&self.0), turn, Arc::clone(resident)));
        }
        // If nobody drives the train any more, there is no answer, and the request is run alone.
        let departed = departed.map(|_| Ok(()));
        let departed = no_longer_than(job.queue_timeout, departed);
        within(job.deadline, "waiting for a lane", departed).await?;
        drop(ticket);
        let queued = asked.elapsed();
        let answered = answered.map(|answer| answer.unwrap_or(Ok(None)));
        let answer = within(job.deadline, "running", answered).await?;
        Ok(answer.map(|(outputs, cost)| (outputs, Cost { queued, ..cost })))
    }
}

/// Waits for a train's lane, and runs it.
async fn drive(inner: Arc<Inner>, turn: Turn<Passenger>, resident: Arc<Resident>) {
    let Ok(mut lane) = turn.wait().await else { return };
    let Some((riders, filling)) = lane.riders() else { return };
    let (mut requests, mut brought, mut waiters) = (Vec::new(), Vec::new(), Vec::new());
    let (mut flags, mut answers) = (Vec::new(), Vec::new());
    for (passenger, _) in riders {
        let Passenger { request, inputs, gone, departs, answer } = passenger;
        let _ = departs.send(());
        let (tenant, rows) = (Arc::clone(&request.tenant), request.rows);
        waiters.push(Waiter { tenant, rows, gone: Arc::clone(&gone) });
        requests.push(request);
        brought.push(inputs);
        flags.push(gone);
        answers.push(answer);
    }
    let rows: Vec<u64> = requests.iter().map(|request| request.rows).collect();
    let ends = EndOnDrop::new(&inner.lanes, lane.job(), flags);
    let run = async {
        let (device, graph) = (Arc::clone(&inner), Arc::clone(&resident));
        // On a thread of its own from here: copying takes its time too, and is charged.
        let begun = blocking(move || {
            lane.start(filling);
            let inputs = stack(&brought, filling)?;
            match graph.graph.ready(&inputs)? {
                Some(plan) => Ok(Ok(device.on(lane, plan, &graph, waiters, filling).run(inputs)?)),
                // Nobody holds a lane while the graph is made ready.
                None => Ok(Err((inputs, waiters))),
            }
        });
        let (inputs, waiters) = match begun.await? {
            Ok(ridden) => return Ok(ridden),
            Err(unprepared) => unprepared,
        };
        let plan = inner.ready(Arc::clone(&resident), &inputs).await?;
        let lane = inner.lanes.acquire(&requests).await?;
        ends.renumber(lane.job());
        let run = inner.on(lane, plan, &resident, waiters, filling);
        blocking(move || run.run(inputs)).await
    };
    let all_gone = join_all(answers.iter_mut().map(oneshot::Sender::closed));
    let ridden = tokio::select! {
        biased;
        ridden = run => ridden,
        // Nobody waits.
        _ = all_gone => return,
    };
    let ridden = ridden.and_then(|(outputs, took)| {
        // Its outputs may not have a row for each row of its inputs.
        part(&outputs, took, &rows, filling).inspect_err(|_| resident.never_rides())
    });
    match ridden {
        Ok(parts) => {
            if rows.len() > 1 {
                inner.batches.fetch_add(1, Ordering::Relaxed);
                inner.batched.fetch_add(u64::try_from(rows.len()).unwrap_or(0), Ordering::Relaxed);
            }
            for (answer, part) in answers.into_iter().zip(parts) {
                let _ = answer.send(Ok(Some(part)));
            }
        }
        Err(error) => {
            let alone = is_alone(&rows, filling).then_some(error);
            for answer in answers {
                let _ = answer.send(alone.clone().map_or(Ok(None), Err));
            }
        }
    }
}

/// Runs on a thread that may wait.
async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(run).await.unwrap_or_else(|error| Err(Error::from_join(error)))
}

/// Whether a batch is one request and nothing else.
fn is_alone<T>(requests: &[T], filling: Filling) -> bool {
    requests.len() == 1 && filling.rows == 0
}

/// All requests' inputs as one request's.
fn stack(brought: &[Vec<Tensor>], filling: Filling) -> Result<Vec<Tensor>, Error> {
    if let Some(inputs) = brought.first().filter(|_| is_alone(brought, filling)) {
        return Ok(inputs.clone());
    }
    let inputs = brought.first().map_or(0, Vec::len);
    let zeros = usize::try_from(filling.rows).unwrap_or(usize::MAX);
    let input = |at: usize| {
        let parts: Vec<&Tensor> = brought.iter().filter_map(|inputs| inputs.get(at)).collect();
        Tensor::stack(&parts, zeros)
    };
    (0..inputs).map(input).collect()
}

/// Each request's part of the outputs and of what it took.
fn part(
    outputs: &[Tensor],
    took: Took,
    rows: &[u64],
    filling: Filling,
) -> Result<Vec<(Vec<Tensor>, Cost)>, Error> {
    let whole = |total: u64| split(total, rows, filling);
    let batch = rows.iter().fold(filling.rows, |sum, rows| sum.saturating_add(*rows));
    let (device, peak) = (whole(nanos(took.device)), whole(took.peak));
    let costs = rows.iter().zip(device.into_iter().zip(peak)).map(|(rows, (device, peak))| Cost {
        device: Duration::from_nanos(device),
        operators: took.operators,
        peak,
        rows: *rows,
        batch,
        padding: filling.rows,
        ..Cost::default()
    });
    if is_alone(rows, filling) {
        return Ok(costs.map(|cost| (outputs.to_vec(), cost)).collect());
    }
    if let Some(output) =
        outputs.iter().find(|output| output.shape().first().copied() != usize::try_from(batch).ok())
    {
        let shape = output.shape();
        return Err(Error::InvalidTensor(format!(
            "an output of shape {shape:?} for a batch of {batch} rows"
        )));
    }
    let mut from = 0;
    let parts = costs.map(|cost| {
        let count = usize::try_from(cost.rows).unwrap_or(usize::MAX);
        let outputs = outputs.iter().map(|output| output.rows(from, count)).collect::<Result<_, _>>()?;
        from = from.saturating_add(count);
        Ok((outputs, cost))
    });
    parts.collect()
}
