//! Invoices: what a tenant owes for a month, line by line.
//!
//! A line is for one unit, one class of devices and one version of prices: its quantity is exact, and its amount, quantity ×
//! price, is rounded to the currency's minor unit, from the middle to the even one. Nothing is rounded before, and the sums
//! are those of the lines as they are shown, so that whoever adds them up gets the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::credit::{Balance, Credit};
use super::{Amount, Charge, Currency, Hour, Month, Tariff, Unit};
use crate::meter::record::Outcome;
use crate::meter::totals::{Key, Sums};
use crate::schema::TenantText;

/// Usage of one hour: of a device, or where that is empty, of calls as a whole.
#[derive(Debug, Clone, Default)]
pub struct Row {
    pub hour: Hour,
    pub device: Arc<str>,
    pub sums: Sums,
}

impl Row {
    /// What is priced of sums: of calls that were refused, which are free, not the call.
    pub fn of(key: &Key, sums: &Sums) -> Self {
        let calls = if key.outcome == Outcome::Refused { 0 } else { sums.calls };
        Self { hour: Hour(key.hour), device: Arc::clone(&key.device), sums: Sums { calls, ..*sums } }
    }
}

/// A line of an invoice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "InvoiceLine")]
pub struct Line {
    pub unit: Unit,
    /// The class of devices; absent for what is of none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    pub rate_card: String,
    /// The hour since which the prices hold: those of the card, with the tenant's own.
    pub prices_of: Hour,
    /// Exact.
    pub quantity: Amount,
    /// Of one of the unit.
    pub price: Amount,
    /// In the currency, rounded to its minor unit.
    pub amount: String,
}

/// What was used and has no price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Unpriced {
    pub unit: Unit,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub class: String,
    pub quantity: Amount,
}

/// What a credit pays of an invoice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "InvoiceCredit")]
pub struct CreditLine {
    pub id: String,
    pub reason: String,
    /// What was left of it before.
    pub available: String,
    /// What it pays.
    pub amount: String,
}

/// What a tenant owes for a month.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Invoice {
    #[schemars(with = "TenantText")]
    pub tenant: String,
    pub month: Month,
    /// Whether the month has ended. Until then it is what is owed so far.
    pub closed: bool,
    /// Null where there is no rate card.
    pub currency: Option<Currency>,
    pub lines: Vec<Line>,
    /// The sum of the lines' amounts.
    pub subtotal: String,
    pub credits: Vec<CreditLine>,
    /// What is to be paid: the subtotal less the credits.
    pub total: String,
    /// What was used and costs nothing, because it has no price.
    pub unpriced: Vec<Unpriced>,
}

/// A month's usage with its prices, before credits.
#[derive(Debug, Default)]
pub struct Costs {
    pub currency: Option<Currency>,
    lines: BTreeMap<Of, u128>,
    prices: BTreeMap<Of, Amount>,
    unpriced: BTreeMap<(Unit, String), u128>,
}

/// What makes a line: unit, class, since when the prices hold, and the card.
type Of = (Unit, String, Hour, Arc<str>);

/// A month has prices of two currencies, and no one invoice.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the month has prices in {0} and in {1}; an invoice is in one currency")]
pub struct TwoCurrencies(Currency, Currency);

impl Costs {
    /// What the usage of a month costs.
    ///
    /// # Errors
    /// When its prices are of two currencies.
    pub fn new(month: Month, tariff: &Tariff, rows: &[Row]) -> Result<Self, TwoCurrencies> {
        let last = Hour(month.end().0.saturating_sub(1));
        let mut costs = Self { currency: tariff.at(last).map(|terms| terms.currency), ..Self::default() };
        for Row { hour, device, sums } in rows {
            for Charge { terms, unit, class, counted, price, .. } in tariff.charges(*hour, device, sums) {
                let class = if unit.is_of_devices() { class.to_owned() } else { String::new() };
                let counts = match terms.zip(price) {
                    Some((terms, price)) => {
                        let other = costs.currency.filter(|currency| *currency != terms.currency);
                        if let Some(other) = other {
                            return Err(TwoCurrencies(terms.currency, other));
                        }
                        let of = (unit, class, terms.since, Arc::clone(&terms.card));
                        costs.prices.entry(of.clone()).or_insert_with(|| price.clone());
                        costs.lines.entry(of).or_default()
                    }
                    None => costs.unpriced.entry((unit, class)).or_default(),
                };
                *counts = counts.saturating_add(counted.into());
            }
        }
        Ok(costs)
    }

    fn digits(&self) -> u32 {
        self.currency.map_or(0, Currency::digits)
    }

    /// Each line with its amount as it is owed.
    fn amounts(&self) -> impl Iterator<Item = (&Of, Amount, &Amount, Amount)> {
        let digits = self.digits();
        self.lines.iter().zip(self.prices.values()).map(move |((of, counted), price)| {
            let quantity = of.0.quantity(*counted);
            let amount = (&quantity * price).rounded(digits);
            (of, quantity, price, amount)
        })
    }

    /// The sum of the lines' amounts.
    pub fn subtotal(&self) -> Amount {
        let mut sum = Amount::default();
        self.amounts().for_each(|(.., amount)| sum += &amount);
        sum
    }

    /// The invoice, with what the credits pay of it.
    pub fn invoice(&self, tenant: &str, month: Month, closed: bool, balance: &mut Balance<'_>) -> Invoice {
        let digits = self.digits();
        let shown = |amount: &Amount| amount.with_digits(digits);
        let subtotal = self.subtotal();
        let paid = self.currency.map_or_else(Vec::new, |currency| balance.pay(month, currency, &subtotal));
        let total = &subtotal - &paid.iter().map(|paid| &paid.amount).sum();
        let line =
            |((unit, class, since, card), quantity, price, amount): (&Of, Amount, &Amount, Amount)| Line {
                unit: *unit,
                class: class.clone(),
                rate_card: card.to_string(),
                prices_of: *since,
                quantity,
                price: price.clone(),
                amount: shown(&amount),
            };
        let unpriced = |((unit, class), counted): (&(Unit, String), &u128)| Unpriced {
            unit: *unit,
            class: class.clone(),
            quantity: unit.quantity(*counted),
        };
        Invoice {
            tenant: tenant.to_owned(),
            month,
            closed,
            currency: self.currency,
            lines: self.amounts().map(line).collect(),
            subtotal: shown(&subtotal),
            credits: paid
                .iter()
                .map(|paid| CreditLine {
                    id: paid.credit.id.clone(),
                    reason: paid.credit.reason.clone(),
                    available: shown(&paid.available),
                    amount: shown(&paid.amount),
                })
                .collect(),
            total: shown(&total),
            unpriced: self.unpriced.iter().map(unpriced).collect(),
        }
    }
}

/// The first month of which a bill must be known to know what credits pay of this one.
pub fn first_month(credits: &[Credit], month: Month) -> Month {
    credits.iter().map(|credit| credit.from).min().map_or(month, |first| first.min(month))
}

impl Invoice {
    /// The invoice as a table: a row for each line and credit, and one for each sum.
    ///
    /// # Errors
    /// Never, but the writer may say otherwise.
    pub fn csv(&self) -> Result<Vec<u8>, csv::Error> {
        let mut csv = csv::Writer::from_writer(vec![]);
        csv.write_record([
            "tenant",
            "month",
            "row",
            "unit",
            "class",
            "rate_card",
            "prices_of",
            "quantity",
            "price",
            "amount",
            "currency",
            "note",
        ])?;
        let (month, currency) = (self.month.to_string(), self.currency.map_or("", Currency::code));
        let mut row =
            |row: &str, [unit, class, card, since, quantity, price]: [&str; 6], amount: &str, note: &str| {
                csv.write_record([
                    &self.tenant,
                    &month,
                    row,
                    unit,
                    class,
                    card,
                    since,
                    quantity,
                    price,
                    amount,
                    currency,
                    note,
                ])
            };
        for line in &self.lines {
            let (since, quantity, price) =
                (line.prices_of.to_string(), line.quantity.to_string(), line.price.to_string());
            let of = [line.unit.name(), &line.class, &line.rate_card, &since, &quantity, &price];
            row("line", of, &line.amount, "")?;
        }
        for unpriced in &self.unpriced {
            let quantity = unpriced.quantity.to_string();
            row("unpriced", [unpriced.unit.name(), &unpriced.class, "", "", &quantity, ""], "", "")?;
        }
        row("subtotal", [""; 6], &self.subtotal, "")?;
        for credit in &self.credits {
            row("credit", [""; 6], &format!("-{}", credit.amount), &credit.reason)?;
        }
        row("total", [""; 6], &self.total, "")?;
        csv.into_inner().map_err(|error| csv::Error::from(error.into_error()))
    }
}
