//! What holds for a tenant: the rate card that it has, and prices of its own, hour by hour. Here a row of usage becomes
//! charges; invoices, budgets and exports all ask here.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::card::{Dated, Prices, RateCard, Version, in_effect, kind};
use super::{Amount, Currency, Hour, Unit};
use crate::meter::totals::Sums;
use crate::store::Record;

/// The card of tenants for whom none is named.
pub const DEFAULT_CARD: &str = "default";

/// How a tenant is billed from an hour on, until the next of these is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Billing {
    /// The first hour that is priced by it.
    pub effective_from: Hour,
    /// The rate card.
    #[serde(default = "default_card")]
    pub rate_card: String,
    /// Prices that are other than the card's: each of them alone, the others stay.
    #[serde(default)]
    pub prices: Prices,
}

fn default_card() -> String {
    DEFAULT_CARD.to_owned()
}

impl Dated for Billing {
    fn effective_from(&self) -> Hour {
        self.effective_from
    }
}

/// How a tenant is billed, as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BillingRecord {
    pub tenant: String,
    /// In the order in which they take effect.
    pub versions: Vec<Billing>,
}

impl Record for BillingRecord {
    const KIND: &'static str = "billing";

    fn tenant(&self) -> &str {
        &self.tenant
    }

    /// There is one for each tenant.
    fn name(&self) -> &'static str {
        "billing"
    }
}

/// All cards, by name.
pub type Cards = HashMap<String, Arc<RateCard>>;

/// Prices that hold for a tenant for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The first hour for which they do. With the card's name it says which prices these are.
    pub since: Hour,
    pub card: Arc<str>,
    pub currency: Currency,
    version: Option<Version>,
    own: Option<Prices>,
}

/// What something costs. Nothing is rounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge<'a> {
    /// None while no card is in effect.
    pub terms: Option<&'a Terms>,
    pub unit: Unit,
    /// The devices' class; empty for what is of none.
    pub class: &'a str,
    /// As records count it.
    pub counted: u64,
    /// Of the unit.
    pub quantity: Amount,
    /// Of one of the unit. What has no price costs nothing.
    pub price: Option<&'a Amount>,
    pub amount: Amount,
}

impl Terms {
    fn class<'a>(&'a self, device: &'a str) -> &'a str {
        self.version.as_ref().map_or_else(|| kind(device), |version| version.class(device))
    }

    /// The price of one of a unit: the tenant's own, or the card's.
    fn price(&self, unit: Unit, class: &str) -> Option<&Amount> {
        let card = || self.version.as_ref().and_then(|version| version.prices.of(unit, class));
        self.own.as_ref().and_then(|own| own.of(unit, class)).or_else(card)
    }
}

/// What holds for a tenant, at any time.
#[derive(Debug, Clone, Default)]
pub struct Tariff(Vec<(Hour, Option<Terms>)>);

impl Tariff {
    pub fn new(cards: &Cards, billing: &[Billing]) -> Self {
        let names = billing.iter().map(|billing| billing.rate_card.as_str()).chain([DEFAULT_CARD]);
        let cards_of = names.filter_map(|name| cards.get(name));
        let versions = cards_of.flat_map(|card| card.versions.iter().map(Dated::effective_from));
        let own = billing.iter().map(Dated::effective_from);
        let hours: BTreeSet<Hour> = [Hour::default()].into_iter().chain(own).chain(versions).collect();
        let mut all: Vec<(Hour, Option<Terms>)> = vec![];
        for hour in hours {
            let terms = terms(cards, billing, hour);
            let same = |(_, before): &(Hour, Option<Terms>)| match (before, &terms) {
                (Some(before), Some(terms)) => *before == Terms { since: before.since, ..terms.clone() },
                (None, None) => true,
                _ => false,
            };
            if !all.last().is_some_and(same) {
                all.push((hour, terms));
            }
        }
        Self(all)
    }

    /// What holds in an hour; none while there is no card in effect.
    pub fn at(&self, hour: Hour) -> Option<&Terms> {
        let after = self.0.partition_point(|(since, _)| *since <= hour);
        self.0.get(..after)?.last()?.1.as_ref()
    }

    /// What sums of usage of one hour cost: of a device, or where that is empty, of calls as a whole. There is a charge for
    /// each unit that was used, whether it has a price or not.
    pub fn charges<'a>(
        &'a self,
        hour: Hour,
        device: &'a str,
        sums: &Sums,
    ) -> impl Iterator<Item = Charge<'a>> {
        let terms = self.at(hour);
        let class = terms.map_or_else(|| kind(device), |terms| terms.class(device));
        let units = Unit::ALL.map(|unit| (unit, unit.counted(sums)));
        units.into_iter().filter_map(move |(unit, counted)| {
            if counted == 0 || unit.is_of_devices() == device.is_empty() {
                return None;
            }
            let price = terms.and_then(|terms| terms.price(unit, class));
            let quantity = unit.quantity(counted.into());
            let amount = price.map_or_else(Amount::default, |price| &quantity * price);
            Some(Charge { terms, unit, class, counted, quantity, price, amount })
        })
    }

    /// The first hour in which the currency changes without a new month.
    pub fn changes_currency_within_a_month(&self) -> Option<Hour> {
        let mut currency = None;
        for (since, terms) in &self.0 {
            let Some(terms) = terms else { continue };
            let before = currency.replace(terms.currency);
            if before.is_some_and(|before| before != terms.currency)
                && super::Month::of(*since).start() != *since
            {
                return Some(*since);
            }
        }
        None
    }
}

fn terms(cards: &Cards, billing: &[Billing], hour: Hour) -> Option<Terms> {
    let billing = in_effect(billing, hour);
    let card = cards.get(billing.map_or(DEFAULT_CARD, |billing| &billing.rate_card))?;
    let version = in_effect(&card.versions, hour).cloned();
    let own = billing.map(|billing| billing.prices.clone()).filter(|own| *own != Prices::default());
    (version.is_some() || own.is_some()).then(|| Terms {
        since: hour,
        card: card.name.as_str().into(),
        currency: card.currency,
        version,
        own,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn cards(cards: Value) -> Cards {
        let cards: Vec<RateCard> = serde_json::from_value(cards).unwrap();
        cards.into_iter().map(|card| (card.name.clone(), Arc::new(card))).collect()
    }

    fn day(day: u8) -> String {
        format!("2026-11-{day:02}T00:00:00Z")
    }

    fn hour(text: &str) -> Hour {
        text.parse().unwrap()
    }

    fn calls(price: &str) -> Value {
        json!({ "calls": { "million_calls": price } })
    }

    /// What a million calls cost on each of the days 1, 5, 10, … of a month, and since when.
    fn prices(tariff: &Tariff) -> Vec<String> {
        let shown = |day_of: u8| match tariff.at(hour(&day(day_of))) {
            Some(terms) => {
                let price = terms.price(Unit::MillionCalls, "").map_or("-".to_owned(), ToString::to_string);
                format!("{} {price} {}", terms.card, &terms.since.to_string()[8..10])
            }
            None => "none".to_owned(),
        };
        [1, 5, 10, 15, 20, 25].map(shown).to_vec()
    }

    fn two() -> Cards {
        cards(json!([
            { "name": "default", "currency": "EUR", "versions": [
                { "effective_from": day(5), "prices": calls("1") },
                { "effective_from": day(15), "prices": calls("2") },
            ] },
            { "name": "other", "currency": "EUR", "versions": [
                { "effective_from": day(1), "prices": calls("10") },
                { "effective_from": day(20), "prices": calls("20") },
            ] },
        ]))
    }

    #[test]
    fn an_hour_is_priced_by_the_version_in_effect() {
        let tariff = Tariff::new(&two(), &[]);
        assert_eq!(
            prices(&tariff),
            ["none", "default 1 05", "default 1 05", "default 2 15", "default 2 15", "default 2 15"]
        );
        let before = Hour(hour(&day(15)).0 - 1);
        assert_eq!(tariff.at(before).unwrap().since, hour(&day(5)), "to the last hour before");
        assert!(Tariff::new(&Cards::default(), &[]).at(before).is_none());
    }

    #[test]
    fn a_tenant_has_another_card_and_prices_of_its_own_for_a_while() {
        let billing: Vec<Billing> = serde_json::from_value(json!([
            { "effective_from": day(10), "rate_card": "other" },
            { "effective_from": day(20), "prices": calls("7") },
            { "effective_from": day(25), "rate_card": "other", "prices": { "calls": { "egress_gib": "1" } } },
        ]))
        .unwrap();
        assert_eq!(
            prices(&Tariff::new(&two(), &billing)),
            ["none", "default 1 05", "other 10 10", "other 10 10", "default 7 20", "other 20 25",]
        );
        // Prices of its own need no version of a card, only its currency.
        let own: Vec<Billing> =
            serde_json::from_value(json!([{ "effective_from": day(1), "prices": calls("3") }])).unwrap();
        assert_eq!(prices(&Tariff::new(&two(), &own))[0], "default 3 01");
    }

    #[test]
    fn another_currency_begins_with_a_month() {
        let mut cards = two();
        cards.insert(
            "dollars".to_owned(),
            Arc::new(RateCard {
                name: "dollars".to_owned(),
                currency: "USD".parse().unwrap(),
                versions: vec![Version {
                    effective_from: Hour(0),
                    classes: [].into(),
                    prices: Prices::default(),
                }],
            }),
        );
        let billing = |from: &str| {
            vec![Billing {
                effective_from: hour(from),
                rate_card: "dollars".to_owned(),
                prices: Prices::default(),
            }]
        };
        let found = |from: &str| Tariff::new(&cards, &billing(from)).changes_currency_within_a_month();
        assert_eq!(found("2026-11-10T00:00:00Z"), Some(hour("2026-11-10T00:00:00Z")));
        assert_eq!(found("2026-12-01T00:00:00Z"), None);
        assert_eq!(found("2026-11-02T00:00:00Z"), None, "there was no price before");
    }

    #[test]
    fn sums_become_charges() {
        let cards = cards(json!([{ "name": "default", "currency": "EUR", "versions": [{
            "effective_from": day(1),
            "classes": { "gpu1": "h200" },
            "prices": {
                "calls": { "million_calls": "0.20", "guest_cpu_second": "0.00002" },
                "devices": {
                    "cpu": { "device_second": "0.0001", "memory_gib_second": "0.000003" },
                    "h200": { "device_second": "0.0012", "load": "0.01" },
                },
            },
        }] }]));
        let tariff = Tariff::new(&cards, &[]);
        let charges_of = |hour: Hour, device: &str, sums: &Sums| -> Vec<String> {
            let shown = |charge: Charge<'_>| {
                let Charge { unit, class, counted, quantity, price, amount, .. } = charge;
                let price = price.map_or("-".to_owned(), ToString::to_string);
                format!("{unit} {class} {counted} {quantity} {price} {amount}")
            };
            tariff.charges(hour, device, sums).map(shown).collect()
        };
        let first = hour(&day(1));
        let charges = |device: &str, sums: &Sums| charges_of(first, device, sums);
        let whole = Sums { calls: 3, guest_cpu_ns: 1_500_000_000, egress_bytes: 1 << 30, ..Sums::default() };
        assert_eq!(
            charges("", &whole),
            [
                "million_calls  3 0.000003 0.2 0.0000006",
                "guest_cpu_second  1500000000 1.5 0.00002 0.00003",
                "egress_gib  1073741824 1 - 0",
            ]
        );
        let used = Sums { device_ns: 2_000_000_001, memory_byte_ms: 1 << 30, loads: 2, ..Sums::default() };
        assert_eq!(
            charges("cpu", &used),
            [
                "device_second cpu 2000000001 2.000000001 0.0001 0.0002000000001",
                "memory_gib_second cpu 1073741824 0.001 0.000003 0.000000003",
                "load cpu 2 2 - 0",
            ]
        );
        assert_eq!(
            charges("gpu1", &used)[..1],
            ["device_second h200 2000000001 2.000000001 0.0012 0.0024000000012",]
        );
        assert_eq!(charges("gpu0", &used)[2], "load gpu 2 2 - 0", "its class has no prices");
        assert!(charges("", &used).is_empty(), "what is a device's is under its name");
        let before = charges_of(Hour(first.0 - 1), "gpu1", &used);
        assert_eq!(before[2], "load gpu 2 2 - 0", "before there is a card it has no price, nor a class");
    }
}
