//! Requests that ride together: as those of one job, which is driven by whoever was first.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::{Lane, Lanes, Request, Seat, Shared, Waiting};
use crate::Error;
use crate::sched::Class;
use crate::sched::batch::Batching;
use crate::sched::fair::{GraphId, JobId};

/// What may ride together: a graph, the shape of a row of each input, and the rules. One graph may be asked for by different
/// rules, if it is public under several names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TrainKey {
    pub graph: GraphId,
    pub row: Vec<Vec<usize>>,
    pub batching: Arc<Batching>,
}

/// Who does ride together: those who may, of one class; and of one tenant, if that rides with nobody else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Company {
    key: TrainKey,
    class: Class,
    tenant: Option<Arc<str>>,
}

/// A request that is run alone after a batch with it has failed. Its tenant rides with nobody else on its graph until this
/// is dropped; and for a while after that, unless it has passed.
pub(crate) struct Trial<P> {
    shared: Arc<Shared<P>>,
    graph: GraphId,
    tenant: Arc<str>,
    passed: bool,
}

/// A seat on a train. Dropping it leaves the train, if that has not departed.
pub(crate) struct Ticket<P> {
    shared: Arc<Shared<P>>,
    seat: Seat,
}

/// The turn of a train that has just been started, to be waited for by whoever drives it.
pub(crate) struct Turn<P> {
    shared: Arc<Shared<P>>,
    job: JobId,
    ready: Option<Instant>,
    granted: oneshot::Receiver<Lane<P>>,
}

impl<P: Send> Lanes<P> {
    /// Boards the train for requests of this kind and class, or starts one: then whoever called has to see to it that
    /// somebody waits for its [`Turn`] and drives it.
    ///
    /// # Errors
    /// As [`Lanes::acquire`].
    pub fn board(
        &self,
        request: &Request,
        key: TrainKey,
        passenger: P,
    ) -> Result<(Ticket<P>, Option<Turn<P>>), Error> {
        let mut state = self.0.lock();
        let (now, batching) = (self.0.now(), Arc::clone(&key.batching));
        let waits = state.free == 0 || !batching.max_queue_delay.is_zero();
        let (rider, expected) = self.0.admit(&state, request, waits, now)?;
        let (new, seat) = (state.id(), state.id());
        let held = state.quarantine.holds(request.graph, &request.tenant, now);
        let tenant = held.then(|| Arc::clone(&request.tenant));
        let company = Company { key, class: rider.class, tenant };
        let boarded = state.trains.board(&company, ((seat, passenger), request.rows), &batching, (new, now));
        let expected = state.times.at_least(request.work(boarded.rows), now).unwrap_or(expected);
        state.queue.enter(&request.tenant);
        state.seats.insert(seat, (boarded.job, Arc::clone(&request.tenant)));
        let waits = (boarded.ready, expected);
        let turn = if boarded.starts {
            state.fair.arrive(boarded.job, request.graph, &rider, waits, now);
            let (grant, granted) = oneshot::channel();
            let (train, tenants) = (Some(batching), Vec::new());
            state.waiting.insert(boarded.job, Waiting::New { grant, train, tenants, shape: request.shape });
            let ready = (boarded.ready > now).then(|| self.0.epoch + Duration::from_nanos(boarded.ready));
            Some(Turn { shared: Arc::clone(&self.0), job: boarded.job, ready, granted })
        } else {
            state.fair.join(boarded.job, &rider, waits, now);
            None
        };
        drop(state);
        self.0.dispatch(None);
        Ok((Ticket { shared: Arc::clone(&self.0), seat }, turn))
    }

    /// A batch of these requests has failed, by one of them as it seems, and each will be run alone: that is its trial. None
    /// where all are one tenant's, which has failed nobody else.
    pub fn try_alone(&self, requests: &[Request]) -> Vec<Option<Trial<P>>> {
        let several =
            requests.windows(2).any(|two| matches!(two, [one, other] if one.tenant != other.tenant));
        let mut state = self.0.lock();
        let trial = |request: &Request| {
            let (shared, tenant) = (Arc::clone(&self.0), Arc::clone(&request.tenant));
            several.then(|| {
                state.quarantine.begin(request.graph, &tenant);
                Trial { shared, graph: request.graph, tenant, passed: false }
            })
        };
        requests.iter().map(trial).collect()
    }
}

impl<P> Trial<P> {
    /// The request has been answered.
    pub fn pass(mut self) {
        self.passed = true;
    }
}

impl<P> Drop for Trial<P> {
    fn drop(&mut self) {
        let now = self.shared.now();
        self.shared.lock().quarantine.end(self.graph, &self.tenant, self.passed, now);
    }
}

impl<P> Turn<P> {
    /// Waits for the lane of a train.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if everybody has left it.
    pub async fn wait(mut self) -> Result<Lane<P>, Error> {
        if let Some(ready) = self.ready {
            tokio::select! {
                lane = &mut self.granted => return lane.map_err(|_| Error::Cancelled),
                () = sleep_until(ready) => self.shared.dispatch(None),
            }
        }
        (&mut self.granted).await.map_err(|_| Error::Cancelled)
    }
}

impl<P> Drop for Turn<P> {
    fn drop(&mut self) {
        // Nobody would drive it: those on board are told by what they brought along being dropped.
        let mut state = self.shared.lock();
        let now = self.shared.now();
        state.withdraw(self.job, now);
        let departure = state.trains.depart(self.job, &Batching::default());
        let riders = departure.into_iter().flat_map(|train| train.riders);
        let passengers: Vec<P> = riders
            .map(|((seat, passenger), _)| {
                if let Some((_, tenant)) = state.seats.remove(&seat) {
                    state.queue.leave(&tenant);
                }
                passenger
            })
            .collect();
        drop(state);
        drop(passengers);
    }
}

impl<P> Drop for Ticket<P> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let Some((job, tenant)) = state.seats.remove(&self.seat) else { return };
        state.queue.leave(&tenant);
        let now = self.shared.now();
        let seat = self.seat;
        let Some(at) = state.trains.leave(job, |((taken, _), _)| *taken == seat) else { return };
        if state.fair.leave(job, at, now) {
            // Its driver hears that nobody is on it.
            state.waiting.remove(&job);
        }
    }
}
