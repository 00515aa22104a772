//! Usage with its costs in the columns of FOCUS, the FinOps Open Cost and Usage Specification, version 1.1: what tools for
//! costs of clouds read. Source: <https://focus.finops.org/focus-specification/v1-1/>.
//!
//! A row is what a tenant used of one unit, by function, device and model, in one span of time and at one price. Nothing is
//! rounded here: invoices round their lines, so that sums of this may differ from them by parts of the smallest coin. Credits are
//! in invoices alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::money::invoice::Row;
use super::money::{Amount, Charge, Currency, Hour, Month, Tariff, Unit};
use super::totals::{Key, Sums};

const COLUMNS: [&str; 31] = [
    "BilledCost",
    "BillingAccountId",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ResourceId",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "SkuId",
    "SkuPriceId",
    "SubAccountId",
];

/// What makes a row. Its times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Of {
    start: u64,
    tenant: Arc<str>,
    function: Arc<str>,
    device: Arc<str>,
    model: Arc<str>,
    unit: Unit,
    /// The card and since when its prices hold.
    price: (Arc<str>, Hour),
}

/// A row, apart from what it is of.
struct Cost {
    currency: Currency,
    price: Amount,
    counted: u128,
}

/// Rows in the making.
#[derive(Default)]
pub struct Focus(BTreeMap<Of, Cost>);

impl Focus {
    /// Adds what an hour's usage costs, to the span of time that begins at `start`. What has no price is no charge.
    pub fn add(&mut self, start: u64, key: &Key, sums: &Sums, tariff: &Tariff) {
        let Row { hour, device, sums } = Row::of(key, sums);
        for Charge { terms, unit, counted, price, .. } in tariff.charges(hour, &device, &sums) {
            let Some((terms, price)) = terms.zip(price) else { continue };
            let of = Of {
                start,
                tenant: Arc::clone(&key.tenant),
                function: Arc::clone(&key.function),
                device: Arc::clone(&device),
                model: Arc::clone(&key.model),
                unit,
                price: (Arc::clone(&terms.card), terms.since),
            };
            let new = || Cost { currency: terms.currency, price: price.clone(), counted: 0 };
            let cost = self.0.entry(of).or_insert_with(new);
            cost.counted = cost.counted.saturating_add(counted.into());
        }
    }

    /// All rows as CSV. `end` is where the span ends that begins there; `shown` shows a moment.
    ///
    /// # Errors
    /// None in practice: the text is written to memory.
    pub fn csv(&self, end: impl Fn(u64) -> u64, shown: impl Fn(u64) -> String) -> anyhow::Result<String> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(COLUMNS)?;
        for (of, Cost { currency, price, counted }) in &self.0 {
            let month = Month::of(Hour::of(of.start));
            let quantity = of.unit.quantity(*counted);
            let cost = (&quantity * price).to_string();
            let (quantity, price) = (quantity.to_string(), price.to_string());
            let what = match (&*of.model, &*of.device) {
                ("", "") => format!("{} of function {}", of.unit.name(), of.function),
                ("", device) => format!("{} of {device}", of.unit.name()),
                (model, device) => format!("{} of model {model} on {device}", of.unit.name()),
            };
            let (card, since) = &of.price;
            let price_id = format!("{card}/{since}");
            let category = if of.device.is_empty() { "Compute" } else { "AI and Machine Learning" };
            let unit = of.unit.name();
            writer.write_record([
                cost.as_str(),
                &of.tenant,
                currency.code(),
                &shown(month.end().millis()),
                &shown(month.start().millis()),
                "Usage",
                "",
                &what,
                "Usage-Based",
                &shown(end(of.start)),
                &shown(of.start),
                &quantity,
                unit,
                &cost,
                &price,
                &cost,
                "Weir",
                &cost,
                &price,
                "Standard",
                &quantity,
                unit,
                "Weir",
                "Weir",
                &of.function,
                if of.function.is_empty() { "" } else { "Function" },
                category,
                "Weir",
                unit,
                &price_id,
                &of.tenant,
            ])?;
        }
        Ok(String::from_utf8(writer.into_inner()?)?)
    }
}
