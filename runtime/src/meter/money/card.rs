//! Rate cards: what one of each unit costs, from when on.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Amount, Currency, Hour, Unit};
use crate::name::Name;
use crate::store::Record;

/// Prices of what is not of a device. What is absent has no price here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CallPrices {
    /// A million calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub million_calls: Option<Amount>,
    /// A second of CPU time of guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_cpu_second: Option<Amount>,
    /// A GiB of the host's memory for a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_memory_gib_second: Option<Amount>,
    /// A GiB that guests sent to other hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress_gib: Option<Amount>,
}

/// Prices of a class of devices. What is absent has no price here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DevicePrices {
    /// A second of a lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_second: Option<Amount>,
    /// A GiB of its memory for a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_gib_second: Option<Amount>,
    /// A GiB of its memory, kept free for a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_gib_second: Option<Amount>,
    /// A graph that was loaded because a call asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Amount>,
    /// A second of such loads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_second: Option<Amount>,
}

/// Prices by what they are of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    #[serde(skip_serializing_if = "is_default")]
    pub calls: CallPrices,
    /// By the devices' class; `default` is for classes that are not named, and for units that a class has no price of.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 100))]
    pub devices: BTreeMap<String, DevicePrices>,
}

fn is_default<T: Default + PartialEq>(this: &T) -> bool {
    *this == T::default()
}

/// Prices that hold from an hour on, until the next version does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RateCardVersion")]
pub struct Version {
    /// The first hour that is priced by it.
    pub effective_from: Hour,
    /// The classes of devices, by the devices' names. A device that is not here is of the class of its kind, `cpu` or `gpu`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 100))]
    pub classes: BTreeMap<String, String>,
    #[serde(default)]
    pub prices: Prices,
}

/// A rate card, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RateCard {
    pub name: String,
    pub currency: Currency,
    /// In the order in which they take effect.
    pub versions: Vec<Version>,
}

impl Record for RateCard {
    const KIND: &'static str = "rate_cards";

    /// Cards are the operator's.
    fn tenant(&self) -> &'static str {
        weir_gpu::SYSTEM
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// The class that stands for all others.
pub const DEFAULT_CLASS: &str = "default";

impl CallPrices {
    fn of(&self, unit: Unit) -> Option<&Amount> {
        match unit {
            Unit::MillionCalls => self.million_calls.as_ref(),
            Unit::GuestCpuSecond => self.guest_cpu_second.as_ref(),
            Unit::HostMemoryGibSecond => self.host_memory_gib_second.as_ref(),
            Unit::EgressGib => self.egress_gib.as_ref(),
            Unit::DeviceSecond
            | Unit::MemoryGibSecond
            | Unit::ReservedGibSecond
            | Unit::Load
            | Unit::LoadSecond => None,
        }
    }
}

impl DevicePrices {
    fn of(&self, unit: Unit) -> Option<&Amount> {
        match unit {
            Unit::DeviceSecond => self.device_second.as_ref(),
            Unit::MemoryGibSecond => self.memory_gib_second.as_ref(),
            Unit::ReservedGibSecond => self.reserved_gib_second.as_ref(),
            Unit::Load => self.load.as_ref(),
            Unit::LoadSecond => self.load_second.as_ref(),
            Unit::MillionCalls | Unit::GuestCpuSecond | Unit::HostMemoryGibSecond | Unit::EgressGib => None,
        }
    }
}

impl Prices {
    /// The price of one of a unit, for a class of devices where it is of devices.
    pub fn of(&self, unit: Unit, class: &str) -> Option<&Amount> {
        if !unit.is_of_devices() {
            return self.calls.of(unit);
        }
        let of = |class: &str| self.devices.get(class).and_then(|prices| prices.of(unit));
        of(class).or_else(|| of(DEFAULT_CLASS))
    }

    /// # Errors
    /// A sentence that names what is wrong.
    pub fn check(&self) -> Result<(), String> {
        at_most("prices.devices", &self.devices)?;
        self.devices.keys().try_for_each(|class| named("prices.devices", class))
    }
}

impl Version {
    /// # Errors
    /// A sentence that names what is wrong.
    pub fn check(&self) -> Result<(), String> {
        at_most("classes", &self.classes)?;
        for (device, class) in &self.classes {
            named("classes", device)?;
            named("classes", class)?;
        }
        self.prices.check()
    }

    /// The class of a device.
    pub fn class<'a>(&'a self, device: &'a str) -> &'a str {
        self.classes.get(device).map_or_else(|| kind(device), String::as_str)
    }
}

/// A device's kind: its name without the number of those that are many.
pub fn kind(device: &str) -> &str {
    device.trim_end_matches(|c: char| c.is_ascii_digit())
}

const MOST: usize = 100;

fn at_most<T>(field: &str, named: &BTreeMap<String, T>) -> Result<(), String> {
    match named.len() {
        many if many > MOST => Err(format!("{field} has {many} names; the most is {MOST}")),
        _ => Ok(()),
    }
}

fn named(field: &str, name: &str) -> Result<(), String> {
    let shown: String = name.chars().take(80).collect();
    let says = || {
        format!(
            "{field}: `{}` is no name of a device or of a class; use lower-case letters, digits and hyphens",
            shown.escape_default()
        )
    };
    Name::function(name).map(|_| ()).map_err(|_| says())
}

/// What takes effect at an hour.
pub trait Dated {
    fn effective_from(&self) -> Hour;
}

impl Dated for Version {
    fn effective_from(&self) -> Hour {
        self.effective_from
    }
}

/// Of versions in their order, the one that holds in an hour.
pub fn in_effect<T: Dated>(versions: &[T], hour: Hour) -> Option<&T> {
    let after = versions.partition_point(|version| version.effective_from() <= hour);
    versions.get(..after).and_then(<[T]>::last)
}

/// Puts a version in its place, or in that of the one of the same hour.
pub fn put<T: Dated>(versions: &mut Vec<T>, version: T) {
    let hour = version.effective_from();
    let at = versions.partition_point(|other| other.effective_from() < hour);
    if versions.get(at).is_some_and(|other| other.effective_from() == hour) {
        versions.remove(at);
    }
    versions.insert(at, version);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn version(json: serde_json::Value) -> Result<Version, String> {
        let version: Version = serde_json::from_value(json).map_err(|error| error.to_string())?;
        version.check().map(|()| version)
    }

    #[test]
    fn a_price_is_the_classs_or_the_defaults_or_none() {
        let version = version(json!({
            "effective_from": "2026-11-01T00:00:00Z",
            "classes": { "gpu1": "h200" },
            "prices": {
                "calls": { "million_calls": "0.20" },
                "devices": {
                    "default": { "device_second": "1", "load": "0.5" },
                    "cpu": { "device_second": "0.1" },
                    "h200": { "device_second": "9", "load": "0" },
                },
            },
        }))
        .unwrap();
        assert_eq!(["cpu", "gpu0", "gpu1"].map(|device| version.class(device)), ["cpu", "gpu", "h200"]);
        let price = |unit, class| version.prices.of(unit, class).map(ToString::to_string);
        assert_eq!(price(Unit::DeviceSecond, "cpu").as_deref(), Some("0.1"));
        assert_eq!(price(Unit::DeviceSecond, "gpu").as_deref(), Some("1"));
        assert_eq!(price(Unit::DeviceSecond, "h200").as_deref(), Some("9"));
        assert_eq!(price(Unit::Load, "cpu").as_deref(), Some("0.5"), "a class need not name all");
        assert_eq!(price(Unit::Load, "h200").as_deref(), Some("0"), "and may name nothing");
        assert_eq!(price(Unit::LoadSecond, "cpu"), None);
        assert_eq!(price(Unit::MillionCalls, "").as_deref(), Some("0.2"));
        assert_eq!(price(Unit::EgressGib, ""), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |what: serde_json::Value| {
            let mut all = json!({ "effective_from": "2026-11-01T00:00:00Z" });
            all.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
            version(all).unwrap_err()
        };
        for (what, says) in [
            (json!({ "effective_from": "2026-11-01T00:30:00Z" }), "is not the start of an hour"),
            (json!({ "prices": { "calls": { "million_calls": 1 } } }), "expected a string"),
            (json!({ "prices": { "calls": { "million_calls": "-1" } } }), "`-1` is not an amount"),
            (json!({ "prices": { "calls": { "device_second": "1" } } }), "unknown field `device_second`"),
            (json!({ "prices": { "devices": { "GPU 0": {} } } }), "`GPU 0` is no name of a device"),
            (json!({ "classes": { "gpu0": "" } }), "`` is no name of a device or of a class"),
        ] {
            let refused = with(what);
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn the_version_of_an_hour_is_the_last_that_took_effect() {
        let version = |hour| Version {
            effective_from: Hour(hour),
            classes: BTreeMap::new(),
            prices: Prices::default(),
        };
        let mut versions = vec![];
        for hour in [20, 10, 30, 20] {
            put(&mut versions, version(hour));
        }
        let at = |hour| in_effect(&versions, Hour(hour)).map(|version| version.effective_from.0);
        assert_eq!(
            [9, 10, 19, 20, 29, 30, 99].map(at),
            [None, Some(10), Some(10), Some(20), Some(20), Some(30), Some(30)]
        );
        assert_eq!(versions.len(), 3, "one of the same hour takes the other's place");
    }
}
