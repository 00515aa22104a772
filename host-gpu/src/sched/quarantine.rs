//! Who rides with nobody else for a while. Pure; times come in, in nanoseconds since any moment.
//!
//! One request can fail a batch of many: with a bad row, or by its tenant's quota. Which one it was is seen when each of them
//! is run alone after that. Until its own have been, a tenant rides with nobody else on the graph; and if one of them does not
//! end well then, for whatever reason, it stays like that for a second, and for twice as long each time that it happens again,
//! up to ten minutes. What was ten minutes ago is forgotten.
//!
//! So whoever fails all batches fails a few in an hour, and those who rode with it go on together as soon as their own
//! requests have been answered.

use std::collections::HashMap;
use std::sync::Arc;

use super::fair::GraphId;

/// How long a tenant is barred for the first time, in nanoseconds.
const FIRST: u64 = 1_000_000_000;

/// The longest that it is, and how long that is remembered.
const LONGEST: u64 = 600 * FIRST;

/// Tenants that are remembered, by graph; beside those whose requests are being tried, which are as many as run. Those whose
/// bars end first are forgotten first.
const MOST: usize = 4096;

/// The tenants that ride with nobody else, by graph.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    records: HashMap<(GraphId, Arc<str>), Record>,
}

#[derive(Debug, Default)]
struct Record {
    /// Its requests that are being tried.
    trials: usize,
    /// When its last bar ends or ended, and how long that is.
    until: u64,
    length: u64,
}

impl Quarantine {
    /// Whether a tenant rides with nobody else.
    pub fn holds(&self, graph: GraphId, tenant: &Arc<str>, now: u64) -> bool {
        let held = |record: &Record| record.trials > 0 || now < record.until;
        !self.records.is_empty() && self.records.get(&(graph, Arc::clone(tenant))).is_some_and(held)
    }

    /// A request of a batch that failed is tried alone.
    pub fn begin(&mut self, graph: GraphId, tenant: &Arc<str>) {
        let key = (graph, Arc::clone(tenant));
        if self.records.len() >= MOST && !self.records.contains_key(&key) {
            self.forget();
        }
        self.records.entry(key).or_default().trials += 1;
    }

    /// Its trial is over, and whether it was answered. What ends while its tenant is barred has been paid for.
    pub fn end(&mut self, graph: GraphId, tenant: &Arc<str>, passed: bool, now: u64) {
        let key = (graph, Arc::clone(tenant));
        let Some(record) = self.records.get_mut(&key) else { return };
        record.trials = record.trials.saturating_sub(1);
        if !passed && now >= record.until {
            let again = now < record.until.saturating_add(LONGEST);
            let length = if again { record.length.saturating_mul(2) } else { 0 };
            record.length = length.clamp(FIRST, LONGEST);
            record.until = now.saturating_add(record.length);
        }
        if record.trials == 0 && record.length == 0 {
            self.records.remove(&key);
        }
    }

    fn forget(&mut self) {
        let done = self.records.values().filter(|record| record.trials == 0);
        let mut ends: Vec<u64> = done.map(|record| record.until).collect();
        ends.sort_unstable();
        let median = ends.get(ends.len() / 2).copied().unwrap_or(0);
        self.records.retain(|_, record| record.trials > 0 || record.until > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: GraphId = 7;

    fn fails(quarantine: &mut Quarantine, tenant: &Arc<str>, now: u64) {
        quarantine.begin(GRAPH, tenant);
        quarantine.end(GRAPH, tenant, false, now);
    }

    /// How long a tenant is barred from now on.
    fn barred(quarantine: &Quarantine, tenant: &Arc<str>, now: u64) -> u64 {
        let until = quarantine.records[&(GRAPH, Arc::clone(tenant))].until;
        assert_eq!(quarantine.holds(GRAPH, tenant, now), until > now);
        assert!(!quarantine.holds(GRAPH, tenant, until));
        until.saturating_sub(now)
    }

    #[test]
    fn who_passes_rides_with_others_again_at_once() {
        let mut quarantine = Quarantine::default();
        let (tenant, other) = ("t".into(), "other".into());
        quarantine.begin(GRAPH, &tenant);
        quarantine.begin(GRAPH, &tenant);
        quarantine.end(GRAPH, &tenant, true, 0);
        assert!(quarantine.holds(GRAPH, &tenant, 0), "another request of it is being tried");
        assert!(!quarantine.holds(GRAPH, &other, 0) && !quarantine.holds(GRAPH + 1, &tenant, 0));
        quarantine.end(GRAPH, &tenant, true, 0);
        assert!(!quarantine.holds(GRAPH, &tenant, 0) && quarantine.records.is_empty());
    }

    #[test]
    fn who_fails_is_barred_for_twice_as_long_each_time_and_forgiven_in_the_end() {
        let (mut quarantine, tenant) = (Quarantine::default(), "t".into());
        let (mut now, mut lengths) = (5 * LONGEST, Vec::new());
        for _ in 0..12 {
            fails(&mut quarantine, &tenant, now);
            // Others of the same batch, or of one that had left before.
            fails(&mut quarantine, &tenant, now);
            let length = barred(&quarantine, &tenant, now);
            lengths.push(length / FIRST);
            now += length;
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
        // One that passes after that changes nothing of it.
        quarantine.begin(GRAPH, &tenant);
        quarantine.end(GRAPH, &tenant, true, now);
        fails(&mut quarantine, &tenant, now + LONGEST - 1);
        assert_eq!(barred(&quarantine, &tenant, now + LONGEST - 1), LONGEST);
        now += 2 * LONGEST - 1;
        fails(&mut quarantine, &tenant, now + LONGEST);
        assert_eq!(barred(&quarantine, &tenant, now + LONGEST), FIRST);
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let mut quarantine = Quarantine::default();
        let name = |tenant: u64| Arc::from(tenant.to_string());
        quarantine.begin(GRAPH, &name(0));
        for tenant in 1..20_000 {
            fails(&mut quarantine, &name(tenant), tenant);
            assert!(quarantine.records.len() <= MOST);
        }
        assert!(quarantine.holds(GRAPH, &name(19_999), 19_999), "those whose bars end last stay");
        assert!(quarantine.holds(GRAPH, &name(0), 0), "what is being tried stays");
    }
}
