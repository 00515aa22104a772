use std::time::Duration;

use super::clock::tests::Set;
use super::ledger::tests::{put, record, room};
use super::*;
use crate::config::WhenFull;
use crate::meter::filter::Filter;
use crate::store::{Enough, Store};
use crate::units::Size;

const START: u64 = 1_800_000_000_000;

/// A data directory with a store, a meter and clocks.
struct Bench {
    data: tempfile::TempDir,
    store: Store,
    clocks: Set,
    config: MeteringConfig,
}

impl Bench {
    async fn new(config: MeteringConfig) -> Self {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(data.path(), &[]).await.unwrap();
        Self { data, store, clocks: Set::at(START), config }
    }

    /// A server's start. The one before may have been killed.
    async fn open(&self) -> Meter {
        let summed = self.store.usage_position().await.unwrap();
        let clocks = Box::new(self.clocks.clone());
        let meter = Meter::open_with(clocks, self.data.path(), summed, &self.config).unwrap();
        meter.kept.as_ref().unwrap().book().ledger.put_with(put);
        meter
    }

    /// Calls in the store's sums.
    async fn calls(&self) -> u64 {
        let mut calls = 0;
        let each = |_, sums: totals::Sums| {
            calls += sums.calls;
            Enough::No
        };
        self.store.usage(0..u64::MAX, &Filter::default(), each).await.unwrap();
        calls
    }

    async fn verify(&self) -> Result<verify::Sound, String> {
        verify::data(self.data.path(), None).await.map_err(|error| format!("{error:#}"))
    }
}

/// Few bytes of a log, in many segments.
fn small(when_full: WhenFull) -> MeteringConfig {
    MeteringConfig {
        segment_bytes: Size::bytes(1_000),
        disk_bytes: Size::bytes(4_000),
        when_full,
        ..MeteringConfig::default()
    }
}

/// Records so many calls.
fn calls(meter: &Meter, count: u64) {
    for number in 0..count {
        meter.record(&mut Record { id: String::new(), ..record("t", number) }).unwrap();
    }
}

#[tokio::test]
async fn however_often_a_server_is_killed_each_record_is_summed_once() {
    let bench = Bench::new(MeteringConfig::default()).await;
    let meter = bench.open().await;
    calls(&meter, 5);
    assert_eq!(bench.calls().await, 0);
    drop(meter);
    // Killed before the first flush, again after the start, and after a flush with more behind it.
    drop(bench.open().await);
    let meter = bench.open().await;
    meter.flush(&bench.store).await.unwrap();
    assert_eq!(bench.calls().await, 5);
    calls(&meter, 2);
    drop(meter);
    for _ in 0..2 {
        let meter = bench.open().await;
        meter.flush(&bench.store).await.unwrap();
        assert_eq!(bench.calls().await, 7);
    }
    let sound = bench.verify().await.unwrap();
    assert_eq!((sound.log.records, sound.hours), (7, 1));
}

#[tokio::test]
async fn a_clock_that_is_set_back_leaves_records_in_order() {
    let bench = Bench::new(MeteringConfig::default()).await;
    let meter = bench.open().await;
    let time = |meter: &Meter| {
        let mut record = Record { id: String::new(), ..record("t", 0) };
        meter.record(&mut record).unwrap();
        record.time
    };
    assert_eq!(time(&meter), START);
    bench.clocks.pass(50);
    bench.clocks.step(START - totals::HOUR);
    assert_eq!((time(&meter), meter.stats().clock_steps), (START + 50, 1));
    drop(meter);
    // A start with a clock that is still behind.
    let meter = bench.open().await;
    assert_eq!((time(&meter), meter.stats().clock_steps), (START + 50, 1));
    meter.flush(&bench.store).await.unwrap();
    assert_eq!(bench.verify().await.unwrap().log.records, 3);
}

#[tokio::test]
async fn the_oldest_records_make_room_once_they_are_summed_up() {
    let bench = Bench::new(small(WhenFull::DropOldest)).await;
    let meter = bench.open().await;
    let mut recorded = 0;
    while meter.stats().bytes < meter.stats().most_bytes {
        assert!(meter.admit().is_ok());
        calls(&meter, 1);
        recorded += 1;
    }
    // Nothing is summed up: nothing goes, and calls are refused.
    meter.make_room(&bench.store).await;
    assert_eq!((meter.stats().dropped, meter.admit().is_err()), (0, true));
    meter.flush(&bench.store).await.unwrap();
    meter.make_room(&bench.store).await;
    let stats = meter.stats();
    assert!(stats.dropped > 0 && stats.bytes < stats.most_bytes && meter.admit().is_ok(), "{stats:?}");
    assert_eq!(bench.calls().await, recorded, "they stay in the sums");
    let log = bench.verify().await.unwrap().log;
    assert_eq!((log.heads["t"].seq, log.records < recorded), (recorded, true));
    // The chain goes on where it was, also at the next start.
    drop(meter);
    calls(&bench.open().await, 1);
    assert_eq!(bench.verify().await.unwrap().log.heads["t"].seq, recorded + 1);
}

#[tokio::test]
async fn where_no_record_may_go_calls_are_refused_until_there_is_room() {
    let bench = Bench::new(small(WhenFull::Refuse)).await;
    let meter = bench.open().await;
    let mut recorded = 0;
    while meter.admit().is_ok() {
        calls(&meter, 1);
        recorded += 1;
    }
    assert!(meter.stats().bytes >= meter.stats().most_bytes);
    let refusal = meter.admit().unwrap_err();
    assert!(matches!(&refusal, StoreError::Full(why) if why.contains("metering.disk_bytes")), "{refusal}");
    // What runs is recorded all the same.
    calls(&meter, 1);
    meter.flush(&bench.store).await.unwrap();
    meter.make_room(&bench.store).await;
    assert_eq!((meter.stats().dropped, meter.admit().is_err()), (0, true));
    meter.reload(&MeteringConfig { disk_bytes: Size::mib(1), ..bench.config.clone() });
    meter.make_room(&bench.store).await;
    assert!(meter.admit().is_ok());
    assert_eq!(bench.verify().await.unwrap().log.records, recorded + 1);
}

#[tokio::test]
async fn records_that_are_old_go_once_they_are_summed_up() {
    let config = MeteringConfig { disk_bytes: Size::mib(1), ..small(WhenFull::Refuse) };
    let bench = Bench::new(MeteringConfig { keep: Duration::from_secs(60), ..config }).await;
    let meter = bench.open().await;
    calls(&meter, 10);
    bench.clocks.pass(61_000);
    calls(&meter, 3);
    meter.make_room(&bench.store).await;
    assert_eq!(meter.stats().expired, 0, "not summed up");
    meter.flush(&bench.store).await.unwrap();
    meter.make_room(&bench.store).await;
    assert!(meter.stats().expired > 0);
    let log = bench.verify().await.unwrap().log;
    assert!((3..13).contains(&log.records), "{}", log.records);
    assert_eq!((bench.calls().await, log.heads["t"].seq), (13, 13));
}

#[tokio::test]
async fn what_the_disk_does_not_take_is_held_and_written_later() {
    for (when_full, refused) in [(WhenFull::DropOldest, false), (WhenFull::Refuse, true)] {
        let bench =
            Bench::new(MeteringConfig { held_records: 6, when_full, ..MeteringConfig::default() }).await;
        let meter = bench.open().await;
        calls(&meter, 2);
        room(100);
        calls(&meter, 2);
        let stats = meter.stats();
        assert_eq!((stats.records, stats.held, stats.lost), (2, 2, 0));
        assert_eq!(meter.admit().is_err(), refused, "{when_full:?}");
        calls(&meter, 4);
        assert!(matches!(meter.admit(), Err(StoreError::Full(_))), "there is place for those that run");
        assert!(meter.record(&mut record("t", 9)).is_err(), "one more than may be held");
        assert_eq!((meter.stats().held, meter.stats().lost), (6, 1));
        assert!(meter.sync().await.is_err());
        room(usize::MAX);
        meter.sync().await.unwrap();
        let stats = meter.stats();
        assert_eq!((stats.records, stats.held, meter.admit().is_ok()), (8, 0, true));
        meter.flush(&bench.store).await.unwrap();
        assert_eq!(bench.calls().await, 8);
        assert_eq!(bench.verify().await.unwrap().log.records, 8);
    }
}

#[tokio::test]
async fn sums_that_are_not_those_of_the_records_are_found() {
    let bench = Bench::new(MeteringConfig::default()).await;
    let meter = bench.open().await;
    calls(&meter, 3);
    meter.flush(&bench.store).await.unwrap();
    // Those that are behind the place are not in the sums.
    calls(&meter, 2);
    assert_eq!(bench.verify().await.unwrap().log.records, 5);
    let file = bench.data.path().join("weir.db");
    let database = sqlx::SqlitePool::connect(&format!("sqlite:{}", file.display())).await.unwrap();
    sqlx::query("UPDATE usage_hours SET calls = calls + 1").execute(&database).await.unwrap();
    let why = bench.verify().await.unwrap_err();
    assert!(why.contains("the sums in the database are not those of the log"), "{why}");
    sqlx::query("UPDATE usage_hours SET calls = calls - 1").execute(&database).await.unwrap();
    sqlx::query("UPDATE usage_position SET place = place + 100000").execute(&database).await.unwrap();
    let why = bench.verify().await.unwrap_err();
    assert!(why.contains("its end is missing"), "{why}");
}

#[tokio::test]
async fn without_metering_there_are_no_records_and_no_folder() {
    let data = tempfile::tempdir().unwrap();
    let config = MeteringConfig { enabled: false, ..MeteringConfig::default() };
    let meter = Meter::open(data.path(), Position::default(), &config).unwrap();
    calls(&meter, 1);
    assert_eq!((meter.stats(), meter.admit().is_ok()), (Stats::default(), true));
    assert!(!data.path().join(FOLDER).exists());
}

#[tokio::test]
async fn ids_are_of_the_start_and_numbered() {
    let bench = Bench::new(MeteringConfig::default()).await;
    let (one, other) = (bench.open().await, Bench::new(MeteringConfig::default()).await.open().await);
    let ids: Vec<_> = (0..20).map(|_| one.next_id()).collect();
    let start = &ids[0][..16];
    assert!(ids[0].ends_with("-1") && ids[9].ends_with("-a") && ids[15].ends_with("-10"), "{ids:?}");
    assert!(ids.iter().all(|id| id.starts_with(start)) && !other.next_id().starts_with(start));
}
