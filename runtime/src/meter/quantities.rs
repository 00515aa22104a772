//! The quantities of usage records, named once: sums of them in memory, in the store and in answers all have these fields, in
//! this order.

use std::collections::BTreeMap;

use super::record::{Record, Use};

/// Quantities by name.
pub type Named = BTreeMap<&'static str, u64>;

/// Makes [`Sums`] and [`Quantity`] of a list of what records have and a list of what their uses have.
macro_rules! quantities {
    (
        calls { $($(#[$call_doc:meta])* $call:ident,)* }
        devices { $($(#[$used_doc:meta])* $used:ident = $field:ident by $way:ident,)* }
    ) => {
        /// Sums of what records say, and of what their uses say. One that would pass 2^64 stays there.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Sums {
            $($(#[$call_doc])* pub $call: u64,)*
            $($(#[$used_doc])* pub $used: u64,)*
        }

        /// A quantity, by the name of its field.
        pub struct Quantity {
            pub name: &'static str,
            /// Whether of two the larger one is kept; all others are added up.
            pub is_a_peak: bool,
        }

        /// All of them, in the order of [`Sums::values`].
        pub const QUANTITIES: [Quantity; quantities!(@count $($call)* $($used)*)] = [
            $(Quantity { name: stringify!($call), is_a_peak: false },)*
            $(Quantity {
                name: stringify!($used),
                is_a_peak: quantities!(@peak $way),
            },)*
        ];

        impl Use {
            /// Adds the quantities of another of the same device and model.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.$way(other.$field);)*
            }
        }

        impl Sums {
            pub fn values(&self) -> [u64; QUANTITIES.len()] {
                [$(self.$call,)* $(self.$used,)*]
            }

            pub fn of(values: [u64; QUANTITIES.len()]) -> Self {
                let [$($call,)* $($used,)*] = values;
                Self { $($call,)* $($used,)* }
            }

            /// Those that are not 0, by name.
            pub fn named(&self) -> Named {
                let named = QUANTITIES.iter().map(|quantity| quantity.name).zip(self.values());
                named.filter(|(_, value)| *value > 0).collect()
            }

            /// Adds what a record says of its call as a whole.
            pub fn add_call(&mut self, record: &Record) {
                $(self.$call = self.$call.saturating_add(record.$call);)*
            }

            /// Adds what a record says of one device and model.
            pub fn add_use(&mut self, used: &Use) {
                $(self.$used = self.$used.$way(used.$field);)*
            }

            pub fn add(&mut self, other: &Self) {
                $(self.$call = self.$call.saturating_add(other.$call);)*
                $(self.$used = self.$used.$way(other.$used);)*
            }
        }
    };
    (@count $($name:ident)*) => { [$(stringify!($name)),*].len() };
    (@peak saturating_add) => { false };
    (@peak max) => { true };
}

quantities! {
    calls {
        calls,
        wall_ns,
        held_ns,
        startup_ns,
        /// Of calls: waiting for lanes.
        queue_ns,
        inference_ns,
        guest_ns,
        guest_cpu_ns,
        host_memory_byte_ms,
        request_bytes,
        response_bytes,
        egress_bytes,
        cold_starts,
        cold_code_ns,
        cold_sandbox_ns,
    }
    devices {
        inferences = inferences by saturating_add,
        failed_inferences = failed_inferences by saturating_add,
        device_ns = device_ns by saturating_add,
        /// Of inferences: waiting for lanes.
        lane_queue_ns = queue_ns by saturating_add,
        loads = loads by saturating_add,
        load_ns = load_ns by saturating_add,
        operators = operators by saturating_add,
        peak_bytes = peak_bytes by max,
        memory_byte_ms = memory_byte_ms by saturating_add,
        reserved_byte_ms = reserved_byte_ms by saturating_add,
        rows = rows by saturating_add,
        batch_rows = batch_rows by saturating_add,
        padding_rows = padding_rows by saturating_add,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// A record with every quantity of both kinds, each another number.
    fn record() -> Record {
        let mut record = Record::default();
        let Value::Object(call) = numbered(&serde_json::to_value(full_call()).unwrap(), 0) else { panic!() };
        let Value::Object(used) = numbered(&serde_json::to_value(full_use()).unwrap(), 100) else { panic!() };
        record.clone_from(&serde_json::from_value(Value::Object(call)).unwrap());
        record.uses = vec![serde_json::from_value(Value::Object(used)).unwrap()];
        record
    }

    /// The same object, whose numbers are numbered.
    fn numbered(value: &Value, from: u64) -> Value {
        let mut number = from;
        let fields = value.as_object().unwrap().iter().map(|(name, value)| {
            let value = if value.is_u64() {
                number += 1;
                number.into()
            } else {
                value.clone()
            };
            (name.clone(), value)
        });
        Value::Object(fields.collect())
    }

    fn full_call() -> Record {
        Record {
            calls: 1,
            wall_ns: 1,
            held_ns: 1,
            startup_ns: 1,
            queue_ns: 1,
            inference_ns: 1,
            guest_ns: 1,
            guest_cpu_ns: 1,
            host_memory_byte_ms: 1,
            request_bytes: 1,
            response_bytes: 1,
            egress_bytes: 1,
            cold_starts: 1,
            cold_code_ns: 1,
            cold_sandbox_ns: 1,
            ..Record::default()
        }
    }

    fn full_use() -> Use {
        Use {
            device: "cpu".into(),
            model: "m".into(),
            inferences: 1,
            failed_inferences: 1,
            device_ns: 1,
            queue_ns: 1,
            loads: 1,
            load_ns: 1,
            operators: 1,
            peak_bytes: 1,
            memory_byte_ms: 1,
            reserved_byte_ms: 1,
            rows: 1,
            batch_rows: 1,
            padding_rows: 1,
        }
    }

    #[test]
    fn every_quantity_of_a_record_is_summed_under_its_name() {
        let record = record();
        let mut sums = Sums::default();
        sums.add_call(&record);
        sums.add_use(&record.uses[0]);
        let (call, used) =
            (serde_json::to_value(&record).unwrap(), serde_json::to_value(&record.uses[0]).unwrap());
        for (quantity, value) in QUANTITIES.iter().zip(sums.values()) {
            let field = if quantity.name == "lane_queue_ns" { "queue_ns" } else { quantity.name };
            let of_call = &call[quantity.name];
            let said = if of_call.is_u64() { of_call } else { &used[field] };
            assert_eq!(*said, value, "{}", quantity.name);
        }
        // Whatever a record has that is a number and no name is one of these.
        let number =
            |object: &Value| object.as_object().unwrap().values().filter(|value| value.is_u64()).count();
        let not_summed = ["time"].len();
        assert_eq!(number(&call) + number(&used) - not_summed, QUANTITIES.len());
        assert_eq!(Sums::of(sums.values()), sums);
    }

    #[test]
    fn sums_add_up_and_a_peak_is_the_largest() {
        let mut sums = Sums { calls: 2, peak_bytes: 5, device_ns: u64::MAX - 1, ..Sums::default() };
        sums.add(&Sums { calls: 3, peak_bytes: 4, device_ns: 7, ..Sums::default() });
        assert_eq!(sums, Sums { calls: 5, peak_bytes: 5, device_ns: u64::MAX, ..Sums::default() });
    }
}
