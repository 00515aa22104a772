//! Credits: what a tenant need not pay of its bills, each for some months and up to an amount.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Amount, Currency, Month};
use crate::store::Record;

/// A credit, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    pub tenant: String,
    pub id: String,
    pub currency: Currency,
    pub amount: Amount,
    /// The first month whose bill it pays of.
    pub from: Month,
    /// The last one; none for as long as there is something left of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<Month>,
    /// What it is for.
    pub reason: String,
    /// RFC 3339.
    pub created: String,
}

impl Record for Credit {
    const KIND: &'static str = "credits";

    fn tenant(&self) -> &str {
        &self.tenant
    }

    fn name(&self) -> &str {
        &self.id
    }
}

impl Credit {
    /// The longest reason, in characters.
    const REASON: usize = 200;

    /// # Errors
    /// A sentence that names what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let Self { amount, currency, from, through, reason, .. } = self;
        if amount.is_zero() {
            return Err("amount is 0; a credit is more".to_owned());
        }
        if amount.rounded(currency.digits()) != *amount {
            let digits = currency.digits();
            return Err(format!("amount is {amount}; {currency} has {digits} digits after the point"));
        }
        if let Some(through) = through.filter(|through| through < from) {
            return Err(format!("through is {through}, before {from}, where it begins"));
        }
        match reason.chars().count() {
            0 => Err("reason: say what it is for".to_owned()),
            long if long > Self::REASON => {
                Err(format!("reason has {long} characters; the most is {}", Self::REASON))
            }
            _ => Ok(()),
        }
    }
}

/// What a credit pays of one bill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paid<'a> {
    pub credit: &'a Credit,
    /// What was left of it before.
    pub available: Amount,
    pub amount: Amount,
}

/// What credits pay of bills, and what is left of them.
#[derive(Debug)]
pub struct Balance<'a> {
    /// In the order in which they are used: those that begin first, of those the ones that end first, and then by their ids.
    credits: Vec<&'a Credit>,
    left: HashMap<&'a str, Amount>,
}

impl<'a> Balance<'a> {
    pub fn new(credits: &'a [Credit]) -> Self {
        let mut credits: Vec<&Credit> = credits.iter().collect();
        let order =
            |credit: &&'a Credit| (credit.from, credit.through.is_none(), credit.through, credit.id.as_str());
        credits.sort_by_key(order);
        let left = credits.iter().map(|credit| (credit.id.as_str(), credit.amount.clone())).collect();
        Self { credits, left }
    }

    /// Pays of the bill of a month, which comes after all those before it. None is paid more than is due.
    pub fn pay(&mut self, month: Month, currency: Currency, due: &Amount) -> Vec<Paid<'a>> {
        let mut due = due.clone();
        let mut paid = vec![];
        for credit in &self.credits {
            let holds = credit.from <= month && credit.through.is_none_or(|last| month <= last);
            let Some(left) = self.left.get_mut(credit.id.as_str()) else { continue };
            if !holds || credit.currency != currency || left.is_zero() || due.is_zero() {
                continue;
            }
            let (available, amount) = (left.clone(), due.clone().min(left.clone()));
            *left = &available - &amount;
            due = &due - &amount;
            paid.push(Paid { credit, available, amount });
        }
        paid
    }

    /// What is left of a credit.
    pub fn left(&self, credit: &Credit) -> Amount {
        self.left.get(credit.id.as_str()).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credit(id: &str, amount: &str, from: &str, through: Option<&str>) -> Credit {
        Credit {
            tenant: "t".to_owned(),
            id: id.to_owned(),
            currency: "EUR".parse().unwrap(),
            amount: amount.parse().unwrap(),
            from: from.parse().unwrap(),
            through: through.map(|month| month.parse().unwrap()),
            reason: String::new(),
            created: String::new(),
        }
    }

    #[test]
    fn what_cannot_be_a_credit_is_named() {
        let wrong = |change: fn(&mut Credit)| {
            let mut credit =
                Credit { reason: "r".to_owned(), ..credit("a", "1.25", "2026-11", Some("2026-11")) };
            assert_eq!(credit.check(), Ok(()));
            change(&mut credit);
            credit.check().unwrap_err()
        };
        assert!(wrong(|credit| credit.amount = Amount::default()).contains("amount is 0"));
        let digits = wrong(|credit| credit.amount = "1.255".parse().unwrap());
        assert!(digits.contains("EUR has 2 digits"), "{digits}");
        assert!(wrong(|credit| credit.from = "2026-12".parse().unwrap()).contains("before 2026-12"));
        assert!(wrong(|credit| credit.reason.clear()).contains("what it is for"));
        assert!(wrong(|credit| credit.reason = "x".repeat(201)).contains("the most is 200"));
    }

    #[test]
    fn credits_are_used_in_their_order_and_never_below_nothing() {
        let credits = [
            credit("d", "50", "2026-12", None),
            credit("c", "10", "2026-11", None),
            credit("b", "5", "2026-11", Some("2026-12")),
            credit("a", "1", "2026-11", Some("2026-11")),
        ];
        let mut balance = Balance::new(&credits);
        let mut pay = |month: &str, currency: &str, due: &str| -> Vec<String> {
            let (month, currency) = (month.parse().unwrap(), currency.parse().unwrap());
            let paid = balance.pay(month, currency, &due.parse().unwrap());
            let shown = |paid: &Paid<'_>| format!("{} {} of {}", paid.credit.id, paid.amount, paid.available);
            paid.iter().map(shown).collect()
        };
        assert!(pay("2026-10", "EUR", "100").is_empty(), "none has begun");
        assert_eq!(pay("2026-11", "EUR", "0.4"), ["a 0.4 of 1"]);
        assert!(pay("2026-12", "USD", "3").is_empty(), "they are of another currency");
        assert_eq!(pay("2026-12", "EUR", "8"), ["b 5 of 5", "c 3 of 10"], "what was left of `a` has ended");
        assert_eq!(pay("2027-01", "EUR", "57.01"), ["c 7 of 7", "d 50 of 50"]);
        assert!(pay("2027-02", "EUR", "1").is_empty(), "all are used up");
        assert_eq!(balance.left(&credits[3]).to_string(), "0.6");
        assert!(balance.left(&credits[0]).is_zero());
    }
}
