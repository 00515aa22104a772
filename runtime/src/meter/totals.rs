//! What was recorded and is not yet in the store's table of hours: sums of it, by hour and by all that usage is asked for by.
//!
//! A record is added under the ledger's lock, so this must be cheap: where its key is there already, nothing is allocated and
//! no count of references is touched.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub use super::quantities::{QUANTITIES, Sums};
use super::record::{Kind, Outcome, Record, Use};

/// Milliseconds of an hour.
pub const HOUR: u64 = 3_600_000;

/// What sums are kept apart by. Texts that a record does not have are empty; what is of a call as a whole has neither device
/// nor model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Whole hours since 1970.
    pub hour: u64,
    pub tenant: Arc<str>,
    pub kind: Kind,
    pub function: Arc<str>,
    pub revision: u64,
    /// The id of the key that calls came with.
    pub key: Arc<str>,
    pub class: Arc<str>,
    pub outcome: Outcome,
    pub device: Arc<str>,
    pub model: Arc<str>,
}

/// A key that is looked up: as [`Key`], of texts that are somebody else's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Parts<'a> {
    hour: u64,
    revision: u64,
    kind: Kind,
    outcome: Outcome,
    texts: [&'a str; 6],
}

/// What can be looked up by.
trait Parted {
    fn parts(&self) -> Parts<'_>;
}

impl Parted for Key {
    fn parts(&self) -> Parts<'_> {
        let Self { hour, tenant, kind, function, revision, key, class, outcome, device, model } = self;
        let (hour, kind, revision, outcome) = (*hour, *kind, *revision, *outcome);
        Parts { hour, revision, kind, outcome, texts: [tenant, function, key, class, device, model] }
    }
}

impl Parted for Parts<'_> {
    fn parts(&self) -> Parts<'_> {
        *self
    }
}

/// Keys hash as their parts do, so that a table of the ones is searched for the others.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl<'a> Borrow<dyn Parted + 'a> for Key {
    fn borrow(&self) -> &(dyn Parted + 'a) {
        self
    }
}

impl PartialEq for dyn Parted + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Parted + '_ {}

impl Hash for dyn Parted + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl Key {
    /// The key of a record's call as a whole, or of its use of one device and model.
    fn of(record: &Record, used: Option<&Use>) -> Self {
        let text = |text: &Option<Arc<str>>| text.clone().unwrap_or_default();
        Self {
            hour: record.time / HOUR,
            tenant: Arc::clone(&record.tenant),
            kind: record.kind,
            function: text(&record.function),
            revision: record.revision,
            key: text(&record.key),
            class: text(&record.class),
            outcome: record.outcome,
            device: used.map(|used| Arc::clone(&used.device)).unwrap_or_default(),
            model: used.map(|used| Arc::clone(&used.model)).unwrap_or_default(),
        }
    }
}

impl<'a> Parts<'a> {
    fn of(record: &'a Record, used: Option<&'a Use>) -> Self {
        let text = |text: &'a Option<Arc<str>>| text.as_deref().unwrap_or_default();
        let (device, model) = used.map_or(("", ""), |used| (&*used.device, &*used.model));
        Self {
            hour: record.time / HOUR,
            revision: record.revision,
            kind: record.kind,
            outcome: record.outcome,
            texts: [
                &record.tenant,
                text(&record.function),
                text(&record.key),
                text(&record.class),
                device,
                model,
            ],
        }
    }
}

/// Sums by key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals(HashMap<Key, Sums>);

impl Totals {
    /// Adds a record: its call as a whole, and each of its uses.
    pub fn add(&mut self, record: &Record) {
        // What stays in memory is of devices only.
        if record.kind != Kind::Residency {
            self.at(record, None, |sums| sums.add_call(record));
        }
        for used in &record.uses {
            self.at(record, Some(used), |sums| sums.add_use(used));
        }
    }

    fn at(&mut self, record: &Record, used: Option<&Use>, add: impl FnOnce(&mut Sums)) {
        match self.0.get_mut(&Parts::of(record, used) as &dyn Parted) {
            Some(sums) => add(sums),
            None => add(self.0.entry(Key::of(record, used)).or_default()),
        }
    }

    /// Adds all of another's.
    #[cfg(test)]
    pub fn merge(&mut self, other: Self) {
        if self.0.is_empty() {
            *self = other;
            return;
        }
        for (key, sums) in other.0 {
            self.0.entry(key).or_default().add(&sums);
        }
    }

    /// All of it; nothing is left.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// How many keys there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Sums)> {
        self.0.iter()
    }
}

impl FromIterator<(Key, Sums)> for Totals {
    fn from_iter<I: IntoIterator<Item = (Key, Sums)>>(rows: I) -> Self {
        let mut totals = Self::default();
        for (key, sums) in rows {
            totals.0.entry(key).or_default().add(&sums);
        }
        totals
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A call of `f` that ended so many milliseconds after an hour's start.
    pub fn call(tenant: &str, hour: u64, after: u64) -> Record {
        Record {
            time: hour * HOUR + after,
            tenant: tenant.into(),
            key: Some("k1".into()),
            function: Some("f".into()),
            revision: 3,
            class: Some("standard".into()),
            calls: 1,
            wall_ns: 10,
            ..Record::default()
        }
    }

    pub fn with_use(mut record: Record, device: &str, model: &str, device_ns: u64) -> Record {
        let (device, model) = (device.into(), model.into());
        record.uses.push(Use { device, model, device_ns, inferences: 1, ..Use::default() });
        record
    }

    fn sorted(totals: &Totals) -> Vec<(Key, Sums)> {
        let mut rows: Vec<_> = totals.iter().map(|(key, sums)| (key.clone(), *sums)).collect();
        rows.sort_by(|(one, _), (other, _)| one.cmp(other));
        rows
    }

    #[test]
    fn a_record_is_summed_as_a_call_and_by_device_and_model() {
        let mut totals = Totals::default();
        let record = with_use(with_use(call("t", 5, 0), "cpu", "m", 7), "cuda0", "n", 9);
        totals.add(&record);
        totals.add(&Record { time: record.time + HOUR - 1, ..record.clone() });
        let rows = sorted(&totals);
        let shown: Vec<_> = rows
            .iter()
            .map(|(key, sums)| (&*key.device, &*key.model, sums.calls, sums.wall_ns, sums.device_ns))
            .collect();
        assert_eq!(shown, [("", "", 2, 20, 0), ("cpu", "m", 0, 0, 14), ("cuda0", "n", 0, 0, 18)]);
        assert!(rows.iter().all(|(key, _)| key.hour == 5 && key.revision == 3 && &*key.key == "k1"));
    }

    #[test]
    fn all_that_is_asked_for_by_is_kept_apart() {
        let record = with_use(call("t", 5, 0), "cpu", "m", 7);
        let mut others = vec![record.clone(); 10];
        others[1].time += HOUR;
        others[2].tenant = "u".into();
        others[3].kind = Kind::Rest;
        others[4].function = None;
        others[5].revision += 1;
        others[6].key = None;
        others[7].class = Some("batch".into());
        others[8].outcome = Outcome::Failed;
        others[9].uses[0].device = "cuda0".into();
        others[9].uses[0].model = "n".into();
        let mut totals = Totals::default();
        others.iter().for_each(|record| totals.add(record));
        // Of the last one the call as a whole is the first one's.
        assert_eq!(totals.len(), 2 * others.len() - 1);
        others.iter().for_each(|record| totals.add(record));
        assert_eq!(totals.len(), 2 * others.len() - 1, "found again");
    }

    #[test]
    fn what_stays_in_memory_is_no_call() {
        let mut totals = Totals::default();
        totals.add(&Record { kind: Kind::Residency, ..with_use(call("t", 5, 0), "cpu", "m", 0) });
        assert_eq!(totals.len(), 1);
        assert!(totals.iter().all(|(key, _)| &*key.device == "cpu"));
    }

    #[test]
    fn what_was_taken_can_be_put_back() {
        let (mut totals, mut whole) = (Totals::default(), Totals::default());
        for record in [call("t", 5, 0), with_use(call("t", 5, 1), "cpu", "m", 7), call("u", 6, 0)] {
            totals.add(&record);
            whole.add(&record);
        }
        let taken = totals.take();
        assert_eq!(totals.len(), 0);
        for record in [call("t", 5, 2), call("v", 6, 0)] {
            totals.add(&record);
            whole.add(&record);
        }
        totals.merge(taken);
        assert_eq!(totals, whole);
        let mut empty = Totals::default();
        empty.merge(whole.clone());
        assert_eq!(empty, whole);
    }
}
