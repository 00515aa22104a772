//! What is held of devices' memory whether there are calls or not, as records: by interval, device and model.
//!
//! A graph is on its owner's account. Everybody's graphs are on those of the tenants that used them in the interval, in equal
//! parts; what nobody used, what a division leaves, and what belongs to no tenant are the system's. So is device time that is on
//! no request's tab, of which there is none as far as we know; it would be seen here.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_gpu::{DeviceStats, Held, SYSTEM};

use super::bill::whole;
use super::record::{Kind, Record, Use};

/// A tenant, a device and a model.
type Place = (Arc<str>, Arc<str>, Arc<str>);

/// What is not in a record yet.
#[derive(Default)]
pub struct Residency {
    /// Bytes × nanoseconds, by tenant, device and model.
    held: BTreeMap<Place, u128>,
    /// The same of what is kept free, by device. The system's.
    kept_free: BTreeMap<Arc<str>, u128>,
    /// Device time that has been in a record, by device.
    unbilled: BTreeMap<Arc<str>, u64>,
}

impl Residency {
    /// Takes over what was held, and says it in records: one for each tenant. `name` is what a tenant calls a model of this
    /// digest, or else nothing. Fractions of units stay for the next time.
    pub fn take(
        &mut self,
        held: Vec<Held>,
        devices: &[DeviceStats],
        name: impl Fn(&str, &str) -> Arc<str>,
    ) -> Vec<Record> {
        for held in held {
            self.add(held, &name);
        }
        let mut records: BTreeMap<Arc<str>, Record> = BTreeMap::new();
        let mut say = |tenant: &Arc<str>, used: Use| {
            let new = || Record { kind: Kind::Residency, tenant: Arc::clone(tenant), ..Record::default() };
            records.entry(Arc::clone(tenant)).or_insert_with(new).uses.push(used);
        };
        let system: Arc<str> = SYSTEM.into();
        for ((tenant, device, model), byte_ns) in &mut self.held {
            let memory_byte_ms = whole(byte_ns);
            if memory_byte_ms > 0 {
                let (device, model) = (Arc::clone(device), Arc::clone(model));
                say(tenant, Use { device, model, memory_byte_ms, ..Use::default() });
            }
        }
        self.held.retain(|_, byte_ns| *byte_ns > 0);
        for (device, byte_ns) in &mut self.kept_free {
            let reserved_byte_ms = whole(byte_ns);
            if reserved_byte_ms > 0 {
                say(&system, Use { device: Arc::clone(device), reserved_byte_ms, ..Use::default() });
            }
        }
        for device in devices {
            let told = self.unbilled.entry(device.name.as_str().into()).or_default();
            let device_ns = device.unbilled.saturating_sub(*told);
            *told = device.unbilled;
            if device_ns > 0 {
                say(&system, Use { device: device.name.as_str().into(), device_ns, ..Use::default() });
            }
        }
        records.into_values().collect()
    }

    fn add(&mut self, held: Held, name: impl Fn(&str, &str) -> Arc<str>) {
        let Held { device, owner, digest, byte_ns, users } = held;
        let Some(digest) = digest else {
            *self.kept_free.entry(device).or_default() += byte_ns;
            return;
        };
        let mut add = |tenant: &Arc<str>, byte_ns: u128| {
            if byte_ns > 0 {
                let key = (Arc::clone(tenant), Arc::clone(&device), name(tenant, &digest));
                *self.held.entry(key).or_default() += byte_ns;
            }
        };
        if *owner != *SYSTEM {
            return add(&owner, byte_ns);
        }
        let number = u128::try_from(users.len()).unwrap_or(u128::MAX);
        let part = byte_ns.checked_div(number).unwrap_or(0);
        users.iter().for_each(|user| add(user, part));
        add(&owner, byte_ns - part * number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(owner: &str, digest: Option<&str>, byte_ns: u128, users: &[&str]) -> Held {
        let users = users.iter().map(|user| Arc::from(*user)).collect();
        Held { device: "cpu0".into(), owner: owner.into(), digest: digest.map(Arc::from), byte_ns, users }
    }

    /// Bytes × milliseconds, held and kept free, by tenant and model.
    fn shown(records: &[Record]) -> Vec<(&str, &str, u64, u64)> {
        let mut lines = Vec::new();
        for record in records {
            for used in &record.uses {
                lines.push((&*record.tenant, &*used.model, used.memory_byte_ms, used.reserved_byte_ms));
            }
        }
        lines
    }

    #[test]
    fn everybodys_graph_is_paid_in_equal_parts_by_those_who_used_it() {
        let mut residency = Residency::default();
        let name = |tenant: &str, _: &str| -> Arc<str> { if tenant == SYSTEM { "" } else { "m" }.into() };
        let millis = 1_000_000;
        let records = residency.take(
            vec![
                held("own", Some("d"), 7 * millis, &[]),
                held(SYSTEM, Some("e"), 10 * millis, &["a", "b", "own"]),
                held(SYSTEM, Some("f"), 5 * millis, &[]),
                held(SYSTEM, None, 9 * millis, &[]),
            ],
            &[],
            name,
        );
        let expected =
            [("a", "m", 3, 0), ("b", "m", 3, 0), ("own", "m", 10, 0), (SYSTEM, "", 5, 0), (SYSTEM, "", 0, 9)];
        assert_eq!(shown(&records), expected);
        // A third of a millisecond each has been kept, and the next thirds make it whole.
        let records =
            residency.take(vec![held(SYSTEM, Some("e"), 2 * millis, &["a", "b", "own"])], &[], name);
        assert_eq!(shown(&records), [], "it is not whole yet, but for what was rounded");
        let records = residency.take(vec![held(SYSTEM, Some("e"), 6, &["a", "b", "own"])], &[], name);
        assert_eq!(shown(&records), [("a", "m", 1, 0), ("b", "m", 1, 0), ("own", "m", 1, 0)]);
    }
}
