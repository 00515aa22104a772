//! Money: what usage costs, and what of it is owed.
//!
//! ```text
//! amount.rs    exact decimals
//! currency.rs  currencies and their minor units
//! calendar.rs  hours and months
//! unit.rs      what is priced
//! card.rs      prices, from an hour on
//! tariff.rs    what holds for a tenant: its card and its own prices; usage becomes charges here
//! credit.rs    what need not be paid
//! invoice.rs   what is owed for a month
//! budget.rs    what may be spent in a month
//! book.rs      all of it, in memory
//! ```
//!
//! All of it is computed of the sums of usage, whenever it is asked for; nothing that is owed is kept. So what an invoice says
//! follows from the records, the cards, the tenants' billing and the credits, all of which can be read, and from nothing else.

mod amount;
pub mod budget;
mod calendar;
pub mod card;
pub mod credit;
mod currency;
pub mod invoice;
mod kept;
mod tariff;
mod unit;

pub use amount::Amount;
pub use calendar::{Hour, Month};
pub use currency::Currency;
pub use kept::Money;
pub use tariff::{Billing, BillingRecord, Cards, Charge, DEFAULT_CARD, Tariff};
pub use unit::Unit;

#[cfg(test)]
mod tests;
