use super::*;
use crate::backend::{Graph, Shapes};
use crate::model::ModelSource;
use std::thread;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::{advance, sleep};

use crate::backend::{Book, Plan};
use crate::model::{Format, Signature};
use crate::tensor::Tensor;

struct Empty(Signature);

impl Graph for Empty {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn ready(&self, _: &[Tensor]) -> Result<Option<Arc<dyn Plan>>, Error> {
        Ok(None)
    }

    fn prepare(&self, _: Shapes, _: &mut Book<'_>) -> Result<Arc<dyn Plan>, Error> {
        Err(Error::Cancelled)
    }

    fn weights(&self) -> Option<u64> {
        None
    }

    fn made_per_shape(&self) -> bool {
        false
    }

    fn single(&self) -> Shapes {
        Vec::new()
    }

    fn host_operators(&self) -> Vec<String> {
        Vec::new()
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Goes with its last lease.
const AT_ONCE: Keep = Keep { keep_alive: Duration::ZERO, pin: false, min_resident: Duration::ZERO };
/// Stays, and makes room.
const IDLE: Keep = Keep { keep_alive: HOUR, ..AT_ONCE };
const PINNED: Keep = Keep { pin: true, ..AT_ONCE };

fn key(owner: &str, digest: &str) -> Key {
    Key { owner: owner.into(), digest: digest.into(), tier: Tier::Device }
}

/// A device, and how long a load takes there.
struct World {
    ledger: Arc<Ledger>,
    residency: Arc<Residency>,
    load: Duration,
}

impl World {
    fn of(capacity: u64) -> Self {
        Self::with(capacity, Eviction::Cost)
    }

    fn with(capacity: u64, eviction: Eviction) -> Self {
        let ledger = Ledger::new("cpu", capacity, None);
        let residency = Residency::new(Arc::clone(&ledger), eviction);
        Self { ledger, residency, load: Duration::from_millis(10) }
    }

    fn loading(&self, owner: &str, bytes: u64) -> BoxFuture<'static, Result<Resident, Error>> {
        let (residency, owner, load) = (Arc::clone(&self.residency), owner.into(), self.load);
        let loading = async move {
            let model = ModelSource::from_memory("d", Format::Onnx, Bytes::new());
            let stay = residency.stay(&owner, &model.digest);
            let reserved = residency.reserve(&owner, Kind::Weights, bytes, stay.tab())?;
            sleep(load).await;
            let graph = Empty(Signature { inputs: vec![], outputs: vec![] });
            Ok(Resident::new(Form::Graph(Box::new(graph)), model, reserved, stay, None))
        };
        loading.boxed()
    }

    async fn lease(&self, owner: &str, digest: &str, bytes: u64, keep: Keep) -> Result<Hold, Error> {
        self.residency.lease(key(owner, digest), keep, || self.loading(owner, bytes)).await
    }

    /// Leases a graph and lets it go.
    async fn touch(&self, owner: &str, digest: &str, bytes: u64, keep: Keep) {
        drop(self.lease(owner, digest, bytes, keep).await.unwrap());
    }

    fn there(&self) -> Vec<String> {
        let resident = self.residency.resident();
        resident.iter().map(|graph| format!("{}/{}", graph.owner, graph.digest)).collect()
    }

    fn used(&self) -> u64 {
        self.ledger.snapshot().used
    }

    fn counters(&self) -> [u64; 5] {
        let Residency { loads, failed_loads, hits, unloads, evictions, .. } = &*self.residency;
        [loads, failed_loads, hits, unloads, evictions].map(|counter| counter.load(Ordering::Relaxed))
    }

    #[track_caller]
    fn is_as_it_was(&self) {
        assert!(self.residency.lock().is_empty(), "{:?}", self.there());
        let books = self.ledger.snapshot();
        assert_eq!((books.used, books.accounts), (0, vec![]));
        let [loads, _, _, unloads, evictions] = self.counters();
        assert_eq!(loads, unloads + evictions);
    }
}

#[tokio::test(start_paused = true)]
async fn many_callers_one_load_and_the_last_lease_unloads() {
    let world = World::of(10);
    let leases = (0..100).map(|_| world.lease("t", "d", 10, AT_ONCE));
    let leases: Vec<Hold> = futures::future::try_join_all(leases).await.unwrap();
    assert_eq!(world.counters(), [1, 0, 99, 0, 0]);
    assert_eq!(world.residency.resident()[0].leases, 100);
    let times: Vec<Duration> = leases.iter().filter_map(Hold::load_time).collect();
    assert_eq!(times, [world.load], "one load has one time");
    drop(leases);
    assert_eq!(world.counters(), [1, 0, 99, 1, 0]);
    world.is_as_it_was();
}

#[tokio::test]
async fn a_failed_load_is_told_to_all_who_wait_and_then_forgotten() {
    let world = World::of(10);
    let failure = Error::InvalidModel("no".to_owned());
    let (open, gate) = oneshot::channel::<()>();
    let told = failure.clone();
    let key = || key("t", "d");
    let mut first = Box::pin(world.residency.lease(key(), IDLE, || gate.map(|_| Err(told)).boxed()));
    assert!(first.as_mut().now_or_never().is_none());
    let other = || world.residency.lease(key(), IDLE, || panic!("it waits for the first one's load"));
    let (mut second, mut third) = (Box::pin(other()), Box::pin(other()));
    assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
    open.send(()).unwrap();
    let (first, second) = futures::join!(first, second);
    assert_eq!(first.err(), Some(failure.clone()));
    assert_eq!(second.err(), Some(failure.clone()));
    let anew = world.lease("t", "d", 10, AT_ONCE).await.unwrap();
    assert_eq!(third.await.err(), Some(failure), "one that waited hears of it however late it listens");
    assert_eq!(world.residency.resident()[0].leases, 1, "and takes nothing from those who came after");
    drop(anew);
    world.is_as_it_was();
}

#[tokio::test(start_paused = true)]
async fn a_load_that_nobody_waits_for_any_more_is_dropped() {
    let world = World::of(10);
    for keep in [AT_ONCE, IDLE, PINNED] {
        let mut caller = Box::pin(world.lease("t", "d", 10, keep));
        assert!(caller.as_mut().now_or_never().is_none());
        assert_eq!(world.used(), 10);
        drop(caller);
        world.is_as_it_was();
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_graph_stays_for_as_long_as_it_is_kept_alive() {
    let world = World::of(10);
    let keep = Keep { keep_alive: MINUTE, ..AT_ONCE };
    // The last lease may go on a thread that knows no runtime, nor the paused clock.
    let lease = world.lease("t", "d", 10, keep).await.unwrap();
    thread::spawn(move || drop(lease)).join().unwrap();
    sleep(MINUTE - SECOND).await;
    assert_eq!(world.there(), ["t/d"]);
    let lease = world.lease("t", "d", 10, keep).await.unwrap();
    sleep(HOUR).await;
    assert_eq!(world.there(), ["t/d"], "while it is leased its time does not run");
    drop(lease);
    sleep(MINUTE - SECOND).await;
    assert_eq!(world.residency.resident()[0].idle, Some(MINUTE - SECOND));
    world.touch("t", "d", 10, keep).await;
    sleep(MINUTE - SECOND).await;
    assert_eq!(world.there(), ["t/d"], "a new lease begins it anew");
    sleep(2 * SECOND).await;
    assert_eq!(world.counters(), [1, 0, 2, 1, 0]);
    world.is_as_it_was();
}

#[tokio::test(start_paused = true)]
async fn the_newest_keep_counts_and_one_timer_waits_for_it() {
    let world = World::of(10);
    let keep = |keep_alive| Keep { keep_alive, ..AT_ONCE };
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for _ in 0..100 {
        world.touch("t", "d", 10, keep(HOUR)).await;
        advance(SECOND).await;
    }
    assert_eq!(tasks(), 1);
    world.touch("t", "d", 10, keep(MINUTE)).await;
    sleep(MINUTE + SECOND).await;
    world.is_as_it_was();
    assert_eq!(tasks(), 0);

    world.touch("t", "d", 10, keep(HOUR)).await;
    world.residency.set_keep(&key("t", "d"), keep(MINUTE));
    sleep(MINUTE + SECOND).await;
    world.is_as_it_was();

    world.touch("t", "d", 10, keep(HOUR)).await;
    world.touch("t", "d", 10, AT_ONCE).await;
    world.is_as_it_was();
}

#[tokio::test(start_paused = true)]
async fn a_pinned_graph_stays_for_good_and_makes_no_room() {
    let world = World::of(10);
    world.touch("t", "d", 10, PINNED).await;
    sleep(1000 * HOUR).await;
    let refused = world.lease("u", "e", 1, IDLE).await.unwrap_err();
    assert_eq!(refused, Error::DeviceMemory { requested: 1, used: 10, limit: 10 });
    assert!(world.residency.resident()[0].pinned);
    world.residency.set_keep(&key("t", "d"), Keep { keep_alive: 2000 * HOUR, ..AT_ONCE });
    world.touch("u", "e", 1, AT_ONCE).await;
    assert_eq!(world.counters(), [2, 1, 0, 1, 1]);
    world.is_as_it_was();
}

#[tokio::test(start_paused = true)]
async fn a_graph_makes_no_room_before_its_time() {
    let world = World::of(10);
    world.touch("t", "d", 10, Keep { min_resident: MINUTE, ..IDLE }).await;
    sleep(MINUTE - SECOND).await;
    assert!(world.lease("u", "e", 1, AT_ONCE).await.is_err());
    sleep(SECOND).await;
    world.touch("u", "e", 1, AT_ONCE).await;
    world.is_as_it_was();
}

#[tokio::test(start_paused = true)]
async fn what_a_lease_or_a_job_holds_makes_no_room() {
    let world = World::of(10);
    let lease = world.lease("t", "d", 10, IDLE).await.unwrap();
    assert!(world.lease("u", "e", 1, AT_ONCE).await.is_err());
    let job = Arc::clone(lease.resident());
    drop(lease);
    assert!(world.lease("u", "e", 1, AT_ONCE).await.is_err(), "its bytes would not come back yet");
    assert_eq!(world.there(), ["t/d"]);
    drop(job);
    world.touch("u", "e", 1, AT_ONCE).await;
    world.is_as_it_was();

    let lease = world.lease("t", "d", 10, AT_ONCE).await.unwrap();
    let job = Arc::clone(lease.resident());
    drop(lease);
    assert_eq!((world.there().len(), world.used()), (0, 10), "bytes are in use while the job runs");
    drop(job);
    world.is_as_it_was();
}

#[tokio::test(start_paused = true)]
async fn a_tenant_at_its_quota_makes_room_with_its_own() {
    let world = World::of(100);
    world.ledger.set_quota(&"t".into(), Some(20));
    world.touch("other", "old", 10, IDLE).await;
    sleep(MINUTE).await;
    world.touch("t", "a", 10, IDLE).await;
    sleep(MINUTE).await;
    world.touch("t", "b", 10, IDLE).await;
    let mut job = world.residency.reserve(&"t".into(), Kind::Activations, 5, &Arc::default()).unwrap();
    assert_eq!(world.there(), ["other/old", "t/b"]);
    world.residency.resize(&mut job, 15).unwrap();
    assert_eq!(world.there(), ["other/old"], "growth makes room too");
    let quota = Error::TenantMemory { tenant: "t".to_owned(), requested: 6, used: 15, limit: 20 };
    assert_eq!(world.residency.resize(&mut job, 21).unwrap_err(), quota);
    assert_eq!((job.bytes(), world.there()), (15, vec!["other/old".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_met_costs_nobody_a_graph() {
    let world = World::of(100);
    world.touch("t", "a", 40, IDLE).await;
    world.touch("t", "b", 40, PINNED).await;
    for bytes in [61, 101, u64::MAX] {
        assert!(world.lease("u", "c", bytes, AT_ONCE).await.is_err());
    }
    assert_eq!(world.there(), ["t/a", "t/b"]);
    world.touch("u", "c", 60, AT_ONCE).await;
    assert_eq!(world.there(), ["t/b"]);
}

#[tokio::test(start_paused = true)]
async fn graphs_go_in_the_order_of_what_they_are_worth() {
    for (eviction, order) in
        [(Eviction::Cost, ["cheap", "often", "slow"]), (Eviction::Lru, ["slow", "often", "cheap"])]
    {
        let mut world = World::with(30, eviction);
        world.load = SECOND;
        world.touch("t", "slow", 10, IDLE).await;
        world.load = Duration::from_millis(100);
        for _ in 0..5 {
            world.touch("t", "often", 10, IDLE).await;
        }
        world.touch("t", "cheap", 10, IDLE).await;
        let mut left = order.map(|digest| format!("t/{digest}")).to_vec();
        let mut job = world.residency.reserve(&"u".into(), Kind::Activations, 0, &Arc::default()).unwrap();
        for bytes in [1, 11, 21] {
            world.residency.resize(&mut job, bytes).unwrap();
            left.remove(0);
            let mut there = left.clone();
            there.sort();
            assert_eq!(world.there(), there, "{eviction:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn plans_take_memory_for_as_long_as_anyone_has_them() {
    let world = World::of(50);
    world.touch("u", "idle", 10, IDLE).await;
    let lease = world.lease("t", "d", 10, AT_ONCE).await.unwrap();
    let resident = lease.resident();
    let mut plans = Vec::new();
    for _ in 0..4 {
        plans.push(resident.booked(resident.reserve(&world.residency).unwrap()));
    }
    assert_eq!(world.there(), ["t/d"]);
    assert_eq!((world.residency.resident()[0].bytes, world.used()), (50, 50));
    assert!(resident.reserve(&world.residency).is_err());
    plans.pop();
    // A plan that does not come to be gives back what it would have had.
    drop(resident.reserve(&world.residency).unwrap());
    assert_eq!((world.residency.resident()[0].bytes, world.used()), (40, 40));
    drop(plans);
    drop(lease);
    world.is_as_it_was();
}

#[tokio::test(start_paused = true)]
async fn a_thousand_cycles_leave_nothing() {
    let world = World::of(100);
    for cycle in 0..1000_u64 {
        let (owner, digest) = (format!("t{}", cycle % 7), format!("d{}", cycle % 11));
        let keep =
            [AT_ONCE, IDLE, Keep { keep_alive: SECOND, ..AT_ONCE }][usize::try_from(cycle % 3).unwrap()];
        if cycle % 3 == 2 {
            let lost = (
                world.residency.reserve(&owner.as_str().into(), Kind::Weights, 30, &Arc::default()),
                Error::Cancelled,
            );
            let failing = async move { lost.0.and(Err(lost.1)) }.boxed();
            let key = key(&owner, &format!("failing {digest}"));
            assert!(world.residency.lease(key, keep, || failing).await.is_err());
        } else {
            world.touch(&owner, &digest, 10 + cycle % 31, keep).await;
        }
        assert!(world.used() <= 100);
    }
    let [loads, failed_loads, hits, _, evictions] = world.counters();
    assert_eq!((loads + hits, failed_loads), (667, 333));
    assert!(evictions > 100);
    sleep(HOUR + SECOND).await;
    world.is_as_it_was();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_leave_nothing() {
    let mut world = World::of(200);
    world.load = Duration::from_micros(200);
    let world = Arc::new(world);
    let tasks = (0..32_u64).map(|task| {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            for turn in 0..200_u64 {
                let number = (task * 7919 + turn * 104_729) % 24;
                let (owner, digest) = (format!("t{}", number % 6), format!("d{number}"));
                let keep = if turn % 4 == 0 { AT_ONCE } else { IDLE };
                let leased = world.lease(&owner, &digest, 10 + number, keep);
                match turn % 5 {
                    // One that leaves while it waits.
                    0 => drop(leased.now_or_never()),
                    1 => {
                        let lease = leased.await;
                        let dropped = tokio::task::spawn_blocking(move || drop(lease));
                        dropped.await.unwrap();
                    }
                    _ => {
                        let lease = leased.await;
                        let job = world.residency.reserve(
                            &owner.as_str().into(),
                            Kind::Activations,
                            number,
                            &Arc::default(),
                        );
                        tokio::task::yield_now().await;
                        drop((job, lease));
                    }
                }
                assert!(world.used() <= 200);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert!(world.residency.resident().iter().all(|graph| graph.leases == 0));
    assert!(world.counters()[4] > 0);
    world.residency.make_room(|_| true, world.used());
    world.is_as_it_was();
}
