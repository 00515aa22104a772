use super::*;
use crate::meter::record::Outcome;

const MOST: MetricsConfig =
    MetricsConfig { tenants: 2, functions_per_tenant: 2, keep: Duration::from_secs(900) };

fn enter(all: &Cardinality, tenant: &str, function: &str) -> Arc<Tally> {
    all.enter(&tenant.into(), &function.into(), MOST)
}

fn call(tally: &Tally, times: u64) {
    for _ in 0..times {
        tally.begin();
        tally.end(Outcome::Answered, None, Duration::from_millis(1));
    }
}

/// Calls by labels, and how many functions and tenants have none.
fn shown(all: &Cardinality, at: Instant) -> (Vec<(String, u64)>, u64, u64) {
    let Shown { rows, folded_functions, folded_tenants } = all.show(MOST, at);
    let row = |row: &Row| (format!("{}/{}", row.tenant, row.function), row.series.calls.get().sum());
    (rows.iter().map(row).collect(), folded_functions, folded_tenants)
}

fn rows(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    rows.iter().map(|(labels, calls)| ((*labels).to_owned(), *calls)).collect()
}

#[test]
fn those_beyond_the_most_are_counted_together_and_nothing_is_lost() {
    let all = Cardinality::default();
    let tallies: Vec<_> = (0..1000).map(|number| enter(&all, "a", &format!("f{number}"))).collect();
    let others = [enter(&all, "b", "g"), enter(&all, "c", "h"), enter(&all, "d", "h")];
    assert_eq!(shown(&all, Instant::now()).0, [], "who is not called has no series");
    tallies.iter().chain(&others).for_each(|tally| call(tally, 1));
    let expected = rows(&[("a/_other", 998), ("a/f0", 1), ("a/f1", 1), ("b/g", 1), ("_other/_other", 2)]);
    let (mut is, functions, tenants) = shown(&all, Instant::now());
    is.sort();
    let mut expected = expected;
    expected.sort();
    assert_eq!((is, functions, tenants), (expected, 1000, 2));
}

#[test]
fn whoever_is_called_more_gets_labels_and_no_series_goes_down() {
    let all = Cardinality::default();
    let (one, two, three) = (enter(&all, "a", "one"), enter(&all, "a", "two"), enter(&all, "a", "three"));
    call(&one, 10);
    call(&two, 10);
    call(&three, 15);
    let start = Instant::now();
    let before = rows(&[("a/one", 10), ("a/two", 10), ("a/_other", 15)]);
    assert_eq!(shown(&all, start).0, before);
    let at = |rankings: u32| start + RANKED_EVERY * rankings + Duration::from_secs(1);
    assert_eq!(shown(&all, at(1)).0, before, "not twice as many");
    call(&one, 10);
    call(&three, 100);
    let (is, ..) = shown(&all, at(2));
    assert_eq!(is, rows(&[("a/one", 20), ("a/_other", 115)]), "it begins at zero, with the next call");
    call(&two, 1);
    call(&three, 1);
    assert_eq!(shown(&all, at(2)).0, rows(&[("a/one", 20), ("a/three", 1), ("a/_other", 116)]));
}

#[test]
fn a_tenant_with_more_calls_gets_labels() {
    let all = Cardinality::default();
    let tallies: Vec<_> = ["a", "b", "c"].map(|tenant| enter(&all, tenant, "f")).into();
    call(&tallies[1], 10);
    call(&tallies[2], 10);
    let later = Instant::now() + RANKED_EVERY + Duration::from_secs(1);
    shown(&all, later);
    tallies.iter().for_each(|tally| call(tally, 1));
    let is = shown(&all, later).0;
    assert_eq!(is, rows(&[("b/f", 11), ("c/f", 1), ("_other/_other", 11)]));
}

#[test]
fn what_is_deleted_is_shown_for_a_while_or_until_its_place_is_needed() {
    let all = Cardinality::default();
    let (one, two) = (enter(&all, "a", "one"), enter(&all, "a", "two"));
    call(&one, 1);
    call(&two, 2);
    drop((one, two));
    let start = Instant::now();
    assert_eq!(shown(&all, start).0, rows(&[("a/one", 1), ("a/two", 2)]));
    let two = enter(&all, "a", "two");
    call(&two, 1);
    assert_eq!(shown(&all, start).0, rows(&[("a/one", 1), ("a/two", 3)]), "it goes on where it was");
    let three = enter(&all, "a", "three");
    call(&three, 1);
    assert_eq!(shown(&all, start).0, rows(&[("a/three", 1), ("a/two", 3)]), "one that lives needs the place");
    drop((two, three));
    let gone = start + RANKED_EVERY + Duration::from_secs(1);
    assert_eq!(shown(&all, gone).0.len(), 2);
    assert_eq!(shown(&all, gone + MOST.keep).0, []);
}

#[test]
fn functions_that_come_and_go_leave_nothing() {
    let all = Cardinality::default();
    for number in 0..10_000 {
        call(&enter(&all, "a", &format!("f{number}")), 1);
    }
    let state = all.state();
    let entries: usize = state.tenants.values().map(|tenant| tenant.functions.len()).sum();
    assert!(entries <= 64, "{entries} are kept");
}
