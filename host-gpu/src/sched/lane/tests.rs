use super::*;

use std::thread;

use futures::FutureExt;

fn lanes(total: usize, queue: usize) -> Lanes<&'static str> {
    // No quantum, so that it is the order that is tested, and no minimum for later classes.
    let sharing =
        Sharing { quantum: Duration::ZERO, standard_share: 0, batch_share: 0, ..Sharing::default() };
    Lanes::new("test", NonZeroUsize::new(total).unwrap(), queue, sharing, TenantShare::default())
}

fn request(tenant: &str, class: Class) -> Request {
    Request { tenant: tenant.into(), class, graph: 1, rows: 1, shape: 0, deadline: None }
}

fn standard(tenant: &str) -> [Request; 1] {
    [request(tenant, Class::Standard)]
}

fn is_idle(lanes: &Lanes<&'static str>) {
    let stats = lanes.stats();
    assert_eq!((stats.busy, stats.queued, stats.suspended), (0, 0, 0));
    assert!(stats.queued_by.is_empty());
    let state = lanes.0.lock();
    assert!(state.waiting.is_empty() && state.seats.is_empty());
}

#[tokio::test]
async fn full_queues_refuse_at_once() {
    let lanes = lanes(1, 2);
    lanes.set_share(&"a".into(), TenantShare { queue: 1, ..TenantShare::default() });
    let held = lanes.acquire(&standard("a")).await.unwrap();
    let (a, b, c) = (standard("a"), standard("b"), standard("c"));
    let mut mine = Box::pin(lanes.acquire(&a));
    assert!(mine.as_mut().now_or_never().is_none());
    let refused = lanes.acquire(&a).await.err().unwrap();
    let (device, tenant) = ("test".to_owned(), "a".to_owned());
    assert_eq!(refused, Error::TenantQueueFull { device: device.clone(), tenant, queued: 1 });
    let mut other = Box::pin(lanes.acquire(&b));
    assert!(other.as_mut().now_or_never().is_none());
    let refused = lanes.acquire(&b).await.err().unwrap();
    assert_eq!(refused, Error::QueueFull { device, queued: 2 });
    let mut none = Box::pin(lanes.acquire(&c));
    assert!(none.as_mut().now_or_never().is_none(), "a full queue keeps nobody out who has none waiting");
    drop(held);
    let take = |lane: Result<Lane<_>, _>| drop(lane.unwrap());
    futures::join!(mine.map(take), other.map(take), none.map(take));
    is_idle(&lanes);
}

#[tokio::test]
async fn requests_of_one_job_are_counted_one_by_one() {
    let lanes = lanes(1, 8);
    lanes.set_share(&"a".into(), TenantShare { queue: 2, ..TenantShare::default() });
    let held = lanes.acquire(&standard("b")).await.unwrap();
    let three = ["a"; 3].map(|tenant| request(tenant, Class::Standard));
    let refused = lanes.acquire(&three).await.err().unwrap();
    assert!(matches!(refused, Error::TenantQueueFull { queued: 2, .. }), "{refused}");
    assert_eq!(lanes.stats().queued, 0, "none of them waits");
    let mut two = Box::pin(lanes.acquire(&three[..2]));
    assert!(two.as_mut().now_or_never().is_none());
    assert_eq!(lanes.stats().queued, 2);
    drop((two, held));
    is_idle(&lanes);
}

#[tokio::test]
async fn classes_go_in_order_capped_by_what_the_tenant_may_have() {
    let lanes = lanes(1, 8);
    lanes.set_share(&"capped".into(), TenantShare { class: Class::Batch, ..TenantShare::default() });
    let held = lanes.acquire(&standard("a")).await.unwrap();
    let order = Mutex::new(Vec::new());
    let wait = |name: &'static str, class| {
        let (lanes, order) = (&lanes, &order);
        async move {
            let _lane = lanes.acquire(&[request(name, class)]).await.unwrap();
            order.lock().unwrap().push(name);
        }
    };
    let mut waiters = [
        Box::pin(wait("batch", Class::Batch)),
        Box::pin(wait("capped", Class::Critical)),
        Box::pin(wait("first", Class::Standard)),
        Box::pin(wait("second", Class::Standard)),
        Box::pin(wait("urgent", Class::Critical)),
    ];
    for waiter in &mut waiters {
        assert!(waiter.now_or_never().is_none());
    }
    drop(held);
    futures::future::join_all(waiters).await;
    assert_eq!(*order.lock().unwrap(), ["urgent", "first", "second", "batch", "capped"]);
    is_idle(&lanes);
}

#[tokio::test]
async fn whoever_goes_while_it_waits_is_skipped_and_leaks_no_lane() {
    let lanes = lanes(1, 8);
    let held = lanes.acquire(&standard("a")).await.unwrap();
    let (b, c) = (standard("b"), standard("c"));
    let mut gone = Box::pin(lanes.acquire(&b));
    let mut next = Box::pin(lanes.acquire(&c));
    assert!(gone.as_mut().now_or_never().is_none());
    assert!(next.as_mut().now_or_never().is_none());
    drop(gone);
    assert_eq!(lanes.stats().queued, 1);
    drop(held);
    assert_eq!(lanes.stats().busy, 1, "the lane is on its way");
    drop(next);
    is_idle(&lanes);
}

#[tokio::test]
async fn a_job_makes_way_at_its_next_operator_and_goes_on_after() {
    let lanes = lanes(1, 8);
    let mut long = lanes.acquire(&standard("long")).await.unwrap();
    let (begun, go) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let running = thread::spawn(move || {
        let tab = Arc::new(Tab::default());
        long.start(Filling::default(), vec![Arc::clone(&tab)]);
        begun.0.send(()).unwrap();
        go.1.recv().unwrap();
        let made_way = long.checkpoint(|| false);
        drop(long);
        (made_way, tab.take().device)
    });
    begun.1.recv().unwrap();
    let urgent = [request("urgent", Class::Critical)];
    let waiting = lanes.acquire(&urgent);
    tokio::pin!(waiting);
    assert!(waiting.as_mut().now_or_never().is_none());
    go.0.send(()).unwrap();
    let urgent = waiting.await.unwrap();
    let stats = lanes.stats();
    assert_eq!((stats.busy, stats.suspended, stats.suspensions), (1, 1, 1));
    assert!(!running.is_finished());
    drop(urgent);
    let (made_way, used) = running.join().unwrap();
    assert!(made_way.is_ok() && used > 0);
    let stats = lanes.stats();
    assert_eq!(
        stats.device_time.get("long"),
        Some(&used),
        "what is on the tab is what the lane has measured"
    );
    assert_eq!((stats.used, stats.unbilled), (used, 0));
    is_idle(&lanes);
}

#[tokio::test]
async fn a_job_that_nobody_wants_any_more_ends_while_it_makes_way() {
    let lanes = lanes(1, 8);
    let mut long = lanes.acquire(&standard("long")).await.unwrap();
    let job = long.job().unwrap();
    let urgent = [request("urgent", Class::Critical)];
    let waiting = lanes.acquire(&urgent);
    tokio::pin!(waiting);
    assert!(waiting.as_mut().now_or_never().is_none());
    let running = thread::spawn(move || {
        long.start(Filling::default(), Vec::new());
        long.checkpoint(|| false)
    });
    let urgent = waiting.await.unwrap();
    lanes.cancel(job);
    assert_eq!(running.join().unwrap(), Err(Error::Cancelled));
    assert_eq!(lanes.stats().busy, 1);
    drop(urgent);
    is_idle(&lanes);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_in_time_is_refused_at_once() {
    let lanes = lanes(1, 8);
    let deadline = |millis| Some(Instant::now() + Duration::from_millis(millis));
    let mut lane = lanes.acquire(&standard("a")).await.unwrap();
    let tab = Arc::new(Tab::default());
    lane.start(Filling::default(), vec![Arc::clone(&tab)]);
    tokio::time::advance(Duration::from_millis(50)).await;
    lane.finish(1);
    assert_eq!(tab.take().device, 50_000_000);
    let waits = Request { deadline: deadline(1000), ..request("a", Class::Standard) };
    let soon = Request { deadline: deadline(80), ..waits.clone() };
    let queued = std::slice::from_ref(&waits);
    let mut first = Box::pin(lanes.acquire(queued));
    assert!(first.as_mut().now_or_never().is_none());
    let refused = lanes.acquire(std::slice::from_ref(&soon)).await.err().unwrap();
    let (needed, left) = (Duration::from_millis(100), Duration::from_millis(80));
    assert_eq!(refused, Error::DeadlineTooSoon { needed, left }, "its own run and the one before it");
    let other = Request { tenant: "b".into(), ..soon.clone() };
    let mut others = Box::pin(lanes.acquire(std::slice::from_ref(&other)));
    assert!(others.as_mut().now_or_never().is_none(), "another tenant's jobs need not be before it");
    let shorter = Request { shape: 1, ..soon };
    drop(first);
    let mut shorter = Box::pin(lanes.acquire(std::slice::from_ref(&shorter)));
    assert!(shorter.as_mut().now_or_never().is_none(), "nothing is known of inputs of another shape");
    drop((shorter, others, lane));
    is_idle(&lanes);
}

#[tokio::test(start_paused = true)]
async fn a_train_waits_for_riders_and_departs_with_those_who_stayed() {
    let lanes = lanes(1, 8);
    let batching =
        Arc::new(Batching { max_batch: 3, max_queue_delay: Duration::from_millis(5), ..Batching::default() });
    let key = TrainKey { graph: 1, row: vec![], batching };
    let board =
        |tenant: &'static str| lanes.board(&request(tenant, Class::Standard), key.clone(), tenant).unwrap();
    let (_first, turn) = board("first");
    let turn = turn.expect("whoever is first starts a train");
    let (left, none) = board("left");
    assert!(none.is_none());
    drop(left);
    let (_second, none) = board("second");
    assert!(none.is_none());
    let started = Instant::now();
    let mut lane = turn.wait().await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_millis(5), "nobody else came");
    let (riders, filling) = lane.riders().unwrap();
    assert_eq!((riders, filling), (vec![("first", 1), ("second", 1)], Filling::default()));
    drop(lane);

    let (_one, turn) = board("one");
    let mut waiting = Box::pin(turn.unwrap().wait());
    assert!(waiting.as_mut().now_or_never().is_none());
    let (_two, _) = board("two");
    let (_three, _) = board("three");
    let mut lane = waiting.now_or_never().expect("a full train does not wait").unwrap();
    assert_eq!(lane.riders().unwrap().0.len(), 3);
    drop(lane);
    is_idle(&lanes);
}

#[tokio::test(start_paused = true)]
async fn who_may_have_failed_a_batch_rides_with_nobody_else_until_it_is_known() {
    let lanes = lanes(1, 8);
    let batching = Batching { max_batch: 9, max_queue_delay: Duration::from_secs(60), ..Batching::default() };
    let key = TrainKey { graph: 1, row: vec![], batching: Arc::new(batching) };
    // Those who start a train of their own, each twice.
    let starts = || {
        let tenants = ["bad", "good", "bad", "other"];
        let board = |tenant| lanes.board(&request(tenant, Class::Standard), key.clone(), tenant).unwrap();
        let boarded = tenants.map(|tenant| (tenant, board(tenant)));
        let starts = boarded.iter().filter(|(_, (_, turn))| turn.is_some());
        starts.map(|(tenant, _)| *tenant).collect::<Vec<_>>()
    };
    assert_eq!(starts(), ["bad"]);
    let requests = ["bad", "good"].map(|tenant| request(tenant, Class::Standard));
    let trials = lanes.try_alone(&requests);
    assert_eq!(starts(), ["bad", "good", "other"], "until they have been run alone");
    let [bad, good] = <[_; 2]>::try_from(trials).ok().unwrap();
    good.unwrap().pass();
    assert_eq!(starts(), ["bad", "good"], "others ride with those that were answered");
    drop(bad);
    assert_eq!(starts(), ["bad", "good"]);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(starts(), ["bad"]);
    let one_tenants = lanes.try_alone(&["bad", "bad"].map(|tenant| request(tenant, Class::Standard)));
    assert!(one_tenants.iter().all(Option::is_none));
    is_idle(&lanes);
}

#[tokio::test]
async fn a_train_that_all_have_left_or_nobody_drives_is_gone() {
    let lanes = lanes(1, 8);
    let held = lanes.acquire(&standard("a")).await.unwrap();
    let batching = Arc::new(Batching { max_batch: 3, ..Batching::default() });
    let key = TrainKey { graph: 1, row: vec![], batching };
    let (ticket, turn) = lanes.board(&request("b", Class::Standard), key.clone(), "b").unwrap();
    drop(ticket);
    assert!(turn.unwrap().wait().await.is_err());
    let (ticket, turn) = lanes.board(&request("b", Class::Standard), key.clone(), "b").unwrap();
    drop(turn);
    assert_eq!(lanes.stats().queued, 0);
    drop((ticket, held));
    is_idle(&lanes);
}

#[tokio::test]
async fn who_rides_together_is_of_one_class() {
    let lanes = lanes(1, 8);
    lanes.set_share(&"capped".into(), TenantShare { class: Class::Standard, ..TenantShare::default() });
    let held = lanes.acquire(&standard("a")).await.unwrap();
    let batching = Arc::new(Batching { max_batch: 3, ..Batching::default() });
    let key = TrainKey { graph: 1, row: vec![], batching };
    let board =
        |tenant: &'static str, class| lanes.board(&request(tenant, class), key.clone(), tenant).unwrap();
    let (_standard, standard) = board("standard", Class::Standard);
    let (_critical, critical) = board("critical", Class::Critical);
    let (_capped, none) = board("capped", Class::Critical);
    assert!(none.is_none(), "what counts is the class that it may have");
    drop(held);
    let riders = async |turn: Option<Turn<_>>| turn.unwrap().wait().await.unwrap().riders().unwrap().0;
    assert_eq!(riders(critical).await, [("critical", 1)]);
    assert_eq!(riders(standard).await, [("standard", 1), ("capped", 1)]);
}
