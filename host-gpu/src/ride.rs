//! Requests that ride together: as rows of one batch, which one task drives.
//!
//! Whoever is first starts a train, and with it the task that waits for its lane. What comes out is split among those who
//! rode, and so is what it took. If a batch fails, each of its requests is run alone: one bad row must not fail its
//! neighbours, nor one tenant's quota another tenant's request. A request that rode with nobody, not even zeros, has been
//! run alone. Who may have failed the others rides with none of them for a while (`sched/quarantine.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::join_all;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::Error;
use crate::device::Device;
use crate::job::{EndOnDrop, Present, Waiter, tabs};
use crate::residency::Resident;
use crate::sched::batch::{Batching, Filling};
use crate::sched::lane::{Request, TrainKey, Trial, Turn};
use crate::service::{Cost, Job, Lease, Service, no_longer_than, within};
use crate::tab::{Mark, Tab};
use crate::tensor::Tensor;

/// What a request brings along.
pub(crate) struct Passenger {
    request: Request,
    inputs: Vec<Tensor>,
    tab: Arc<Tab>,
    gone: Arc<AtomicBool>,
    /// Tells that it does not wait for a lane any more.
    departs: oneshot::Sender<()>,
    verdict: oneshot::Sender<Result<Verdict, Error>>,
}

/// What becomes of a request that rode.
enum Verdict {
    Answer(Answer),
    /// The batch failed, or nobody drives it: the request is to be run alone, as a trial if it may be why.
    Alone(Option<Trial<Passenger>>),
}

type Answer = (Part, With);

/// A request's outputs, and what it took.
type Part = (Vec<Tensor>, Cost);

/// The marks of all that rode together; nothing where one rode alone.
pub(crate) type With = Option<Arc<[Mark]>>;

impl Service {
    /// Runs a request together with others like it, and alone if that fails them all; nothing if nobody runs it.
    pub(crate) async fn ride(
        &self,
        lease: &Lease,
        inputs: &[Tensor],
        rows: u64,
        job: &Job,
    ) -> Result<Option<Answer>, Error> {
        let bytes = inputs.iter().map(|input| u64::try_from(input.data().len()).unwrap_or(u64::MAX));
        let bytes = bytes.fold(0, u64::saturating_add);
        let batching = lease.batching.fitting(bytes / rows.max(1));
        let request = lease.request(Some(rows), inputs, job);
        let trial = match self.board(lease, inputs, &request, batching, job).await? {
            Verdict::Answer(answer) => return Ok(Some(answer)),
            Verdict::Alone(trial) => trial,
        };
        match self.board(lease, inputs, &request, Arc::default(), job).await? {
            Verdict::Answer(answer) => {
                if let Some(trial) = trial {
                    trial.pass();
                }
                Ok(Some(answer))
            }
            Verdict::Alone(_) => Ok(None),
        }
    }

    /// Runs a request with those who ride by the same rules.
    async fn board(
        &self,
        lease: &Lease,
        inputs: &[Tensor],
        request: &Request,
        batching: Arc<Batching>,
        job: &Job,
    ) -> Result<Verdict, Error> {
        let resident = lease.hold.resident();
        let row = inputs.iter().map(|input| input.shape().get(1..).unwrap_or_default().to_vec());
        let key = TrainKey { graph: resident.id, row: row.collect(), batching };
        let present = Present::default();
        let (departs, departed) = oneshot::channel();
        let (verdict, given) = oneshot::channel();
        let (gone, inputs, tab) = (Arc::clone(&present.0), inputs.to_vec(), Arc::clone(&job.tab));
        let passenger = Passenger { request: request.clone(), inputs, tab, gone, departs, verdict };
        let asked = Instant::now();
        let (ticket, turn) = lease.device.lanes.board(request, key, passenger)?;
        if let Some(turn) = turn {
            tokio::spawn(drive(Arc::clone(&lease.device), turn, Arc::clone(resident)));
        }
        let departed = departed.map(|_| Ok(()));
        let departed = no_longer_than(job.queue_timeout, departed);
        within(job.deadline, "waiting for a lane", departed).await?;
        drop(ticket);
        let queued = asked.elapsed();
        // If nobody drives the train any more, there is no verdict.
        let given = given.map(|verdict| verdict.unwrap_or(Ok(Verdict::Alone(None))));
        Ok(match within(job.deadline, "running", given).await? {
            Verdict::Answer(((outputs, cost), with)) => {
                Verdict::Answer(((outputs, Cost { queued, ..cost }), with))
            }
            alone => alone,
        })
    }
}

/// Waits for a train's lane, and runs it.
async fn drive(device: Arc<Device>, turn: Turn<Passenger>, resident: Arc<Resident>) {
    let Ok(mut lane) = turn.wait().await else { return };
    let Some((riders, filling)) = lane.riders() else { return };
    let (mut requests, mut brought, mut waiters) = (Vec::new(), Vec::new(), Vec::new());
    let (mut flags, mut verdicts) = (Vec::new(), Vec::new());
    for (passenger, _) in riders {
        let Passenger { request, inputs, tab, gone, departs, verdict } = passenger;
        let _ = departs.send(());
        let (tenant, rows) = (Arc::clone(&request.tenant), request.rows);
        waiters.push(Waiter { tenant, rows, tab, gone: Arc::clone(&gone) });
        requests.push(request);
        brought.push(inputs);
        flags.push(gone);
        verdicts.push(verdict);
    }
    let rows: Vec<u64> = requests.iter().map(|request| request.rows).collect();
    let marks = || waiters.iter().filter_map(|waiter| waiter.tab.mark()).collect();
    let with: With = (rows.len() > 1).then(marks);
    let ends = EndOnDrop::new(&device.lanes, lane.job(), flags);
    let run = async {
        let (on, graph) = (Arc::clone(&device), Arc::clone(&resident));
        // On a thread of its own from here: copying takes its time too, and is charged.
        let begun = device.run(move || {
            lane.start(filling, tabs(&waiters));
            let inputs = stack(&brought, filling)?;
            match graph.graph()?.ready(&inputs)? {
                Some(plan) => Ok(Ok(on.on(lane, plan, &graph, waiters, filling).run(inputs)?)),
                // Nobody holds a lane while the graph is made ready.
                None => Ok(Err((inputs, waiters))),
            }
        });
        let (inputs, waiters) = match begun.await? {
            Ok(ridden) => return Ok(ridden),
            Err(unprepared) => unprepared,
        };
        let first = waiters.first().map(|waiter| Arc::clone(&waiter.tab)).unwrap_or_default();
        let plan = device.ready(Arc::clone(&resident), &inputs, &first).await?;
        let lane = device.lanes.acquire(&requests).await?;
        ends.renumber(lane.job());
        let run = device.on(lane, plan, &resident, waiters, filling);
        device.run(move || run.run(inputs)).await
    };
    let all_gone = join_all(verdicts.iter_mut().map(oneshot::Sender::closed));
    let ridden = tokio::select! {
        biased;
        ridden = run => ridden,
        // Nobody waits.
        _ = all_gone => return,
    };
    let ridden = ridden.and_then(|outputs| {
        // Its outputs may not have a row for each row of its inputs.
        part(&outputs, &rows, filling).inspect_err(|_| resident.never_rides())
    });
    match ridden {
        Ok(parts) => {
            if rows.len() > 1 {
                device.batches.fetch_add(1, Ordering::Relaxed);
                device.batched.fetch_add(u64::try_from(rows.len()).unwrap_or(0), Ordering::Relaxed);
            }
            for (verdict, answer) in verdicts.into_iter().zip(parts) {
                let _ = verdict.send(Ok(Verdict::Answer((answer, with.clone()))));
            }
        }
        Err(error) if is_alone(&rows, filling) => {
            for verdict in verdicts {
                let _ = verdict.send(Err(error.clone()));
            }
        }
        Err(error) => {
            let tried = if may_be_of_one(&error) { &*requests } else { &[] };
            let mut trials = device.lanes.try_alone(tried).into_iter();
            for verdict in verdicts {
                let _ = verdict.send(Ok(Verdict::Alone(trials.next().flatten())));
            }
        }
    }
}

/// Whether one of the requests of a batch may be why it failed.
fn may_be_of_one(error: &Error) -> bool {
    matches!(error, Error::Engine(_) | Error::EnginePanic(_) | Error::TenantMemory { .. })
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

/// Each request's part of the outputs, and what it rode in.
fn part(outputs: &[Tensor], rows: &[u64], filling: Filling) -> Result<Vec<Part>, Error> {
    let batch = rows.iter().fold(filling.rows, |sum, rows| sum.saturating_add(*rows));
    let costs = rows.iter().map(|rows| Cost { rows: *rows, batch, padding: filling.rows, ..Cost::default() });
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
