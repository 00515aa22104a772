//! Rate cards, tenants' billing and credits: kept, restored and changed; and the invoices that follow from them.

use std::sync::Arc;

use super::Node;
use crate::audit::Actor;
use crate::http::precondition::{Precondition, Tag};
use crate::http::problem::{Code, Problem};
use crate::meter::money::card::{self, RateCard, Version};
use crate::meter::money::credit::{Balance, Credit};
use crate::meter::money::invoice::{Costs, Invoice, first_month};
use crate::meter::money::{Billing, BillingRecord, Cards, Currency, Hour, Month, Tariff};
use crate::name::Name;
use crate::store::{Kept, Record};

/// What came of setting prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priced {
    /// There were none.
    New,
    Changed,
}

/// Whether a change may be one of what months that have ended cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restate {
    No,
    Yes,
}

fn refused(reason: String) -> Problem {
    Problem::new(Code::InvalidConfig, reason)
}

impl Node {
    /// One that cannot be read is named in the log, and is as if it were not there.
    pub(super) async fn restore_money(&self) -> anyhow::Result<()> {
        for card in self.rate_card_index.all().await?.0 {
            self.money.put_card(card);
        }
        for billing in self.billing_index.all().await?.0 {
            self.money.put_billing(billing);
        }
        for credit in self.credit_index.all().await?.0 {
            self.money.put_credit(credit);
        }
        Ok(())
    }

    /// The month that it is now.
    pub fn month(&self) -> Month {
        Month::of(Hour::of(self.clock()))
    }

    /// That what begins then changes no month that has ended, or may.
    fn may_begin(&self, what: &str, from: Hour, restate: Restate) -> Result<(), Problem> {
        let month = self.month();
        if restate == Restate::Yes || from >= month.start() {
            return Ok(());
        }
        let detail = format!(
            "{what} is {from}, which would change the invoices of months that have ended; {month} is the first that has \
             not. If that is meant, add `?restate=true`"
        );
        Err(Problem::new(Code::Conflict, detail))
    }

    /// Adds a version to a rate card, in place of the one of the same hour; makes the card if it is not there.
    ///
    /// # Errors
    /// When it cannot be used, or would change months that have ended without being meant to; nothing has changed then.
    pub async fn set_rates(
        &self,
        name: &Name,
        currency: Currency,
        version: Version,
        (restate, condition): (Restate, &Precondition),
        by: &Actor,
    ) -> Result<(Priced, Tag, Arc<RateCard>), Problem> {
        version.check().map_err(refused)?;
        let _change = self.change_by(by).await?;
        condition.check(self.kept_rates(name).await?.as_ref())?;
        self.may_begin("effective_from", version.effective_from, restate)?;
        let (priced, mut card) = match self.money.card(name) {
            Some(card) => (Priced::Changed, (*card).clone()),
            None => (Priced::New, RateCard { name: name.to_string(), currency, versions: vec![] }),
        };
        if card.currency != currency {
            let detail =
                format!("the card is in {}, and stays so; make another one for {currency}", card.currency);
            return Err(refused(detail));
        }
        card::put(&mut card.versions, version);
        let mut cards = self.money.cards();
        cards.insert(card.name.clone(), Arc::new(card.clone()));
        // Tenants of whom nothing is set have the default card.
        let all = self.money.all_billing();
        for (tenant, billing) in &all {
            one_currency(tenant, &cards, billing)?;
        }
        let version = self.write(&card, by).await?;
        self.money.put_card(card.clone());
        self.budgets.look_again();
        let kept = Kept { record: card, version };
        let tag = Tag::from(&kept);
        Ok((priced, tag, Arc::new(kept.record)))
    }

    /// A rate card as it is kept, if it is there.
    ///
    /// # Errors
    /// When the disk cannot give it.
    pub async fn kept_rates(&self, name: &str) -> Result<Option<Kept<RateCard>>, Problem> {
        Ok(self.rate_card_index.get(weir_gpu::SYSTEM, name).await?)
    }

    /// Sets how a tenant is billed from an hour on, in place of what was set for the same hour.
    ///
    /// # Errors
    /// As of [`Self::set_rates`].
    pub async fn set_billing(
        &self,
        tenant: &Name,
        billing: Billing,
        (restate, condition): (Restate, &Precondition),
        by: &Actor,
    ) -> Result<(Priced, Tag), Problem> {
        billing.prices.check().map_err(refused)?;
        let _change = self.change_by(by).await?;
        condition.check(self.kept_billing(tenant).await?.as_ref())?;
        self.may_begin("effective_from", billing.effective_from, restate)?;
        let cards = self.money.cards();
        if !cards.contains_key(&billing.rate_card) {
            let shown: String = billing.rate_card.chars().take(80).collect();
            return Err(refused(format!("rate_card: there is no card `{}`", shown.escape_default())));
        }
        let mut versions = self.money.billing(tenant);
        let priced = if versions.is_empty() { Priced::New } else { Priced::Changed };
        card::put(&mut versions, billing);
        one_currency(tenant, &cards, &versions)?;
        let record = BillingRecord { tenant: tenant.to_string(), versions };
        let version = self.write(&record, by).await?;
        self.money.put_billing(record.clone());
        self.budgets.look_again();
        Ok((priced, Tag::from(&Kept { record, version })))
    }

    /// How a tenant is billed, as it is kept.
    ///
    /// # Errors
    /// When the disk cannot give it.
    pub async fn kept_billing(&self, tenant: &str) -> Result<Option<Kept<BillingRecord>>, Problem> {
        let record = BillingRecord { tenant: tenant.to_owned(), versions: vec![] };
        Ok(self.billing_index.get(tenant, record.name()).await?)
    }

    /// Gives a tenant a credit.
    ///
    /// # Errors
    /// When it cannot be one, or would change months that have ended without being meant to; nothing has changed then.
    pub async fn give_credit(&self, credit: Credit, restate: Restate, by: &Actor) -> Result<Credit, Problem> {
        credit.check().map_err(refused)?;
        let _change = self.change_by(by).await?;
        self.may_begin("from", credit.from.start(), restate)?;
        self.write(&credit, by).await?;
        self.money.put_credit(credit.clone());
        Ok(credit)
    }

    /// What a tenant owes for a month.
    ///
    /// # Errors
    /// When the month has not begun, or the usage cannot be read.
    pub async fn invoice(&self, tenant: &str, month: Month) -> Result<Invoice, Problem> {
        let now = self.month();
        if month > now {
            return Err(Problem::new(Code::InvalidRequest, format!("{month} has not begun; it is {now}")));
        }
        let credits = self.money.credits(tenant);
        let mut balance = Balance::new(&credits);
        let bill = self.bills(tenant, month, &mut balance, &credits).await?;
        Ok(bill.invoice(tenant, month, month < now, &mut balance))
    }

    /// The credits of a tenant, with what months that have ended have left of them.
    ///
    /// # Errors
    /// When the usage cannot be read.
    pub async fn credits_left(&self, tenant: &str) -> Result<Vec<(Credit, String)>, Problem> {
        let credits = self.money.credits(tenant);
        let mut balance = Balance::new(&credits);
        self.bills(tenant, self.month(), &mut balance, &credits).await?;
        let left = |credit: &Credit| balance.left(credit).with_digits(credit.currency.digits());
        Ok(credits.iter().map(|credit| (credit.clone(), left(credit))).collect())
    }

    /// The bill of a month, after credits have paid of those before it.
    async fn bills<'a>(
        &self,
        tenant: &str,
        month: Month,
        balance: &mut Balance<'a>,
        credits: &'a [Credit],
    ) -> Result<Costs, Problem> {
        let tariff = self.money.tariff(tenant);
        let mut at = first_month(credits, month);
        while at < month {
            let bill = self.bill(tenant, at, &tariff).await?;
            if let Some(currency) = bill.currency {
                balance.pay(at, currency, &bill.subtotal());
            }
            at = at.next();
        }
        self.bill(tenant, month, &tariff).await
    }

    async fn bill(&self, tenant: &str, month: Month, tariff: &Tariff) -> Result<Costs, Problem> {
        let rows = self.usage_of(tenant, month.start(), month.end()).await?;
        Costs::new(month, tariff, &rows).map_err(|two| Problem::new(Code::Conflict, two.to_string()))
    }
}

/// That a tenant's prices change their currency with a month, if they do.
fn one_currency(tenant: &str, cards: &Cards, billing: &[Billing]) -> Result<(), Problem> {
    match Tariff::new(cards, billing).changes_currency_within_a_month() {
        None => Ok(()),
        Some(hour) => Err(refused(format!(
            "tenant `{tenant}` would have prices in another currency from {hour} on; a currency changes with a month"
        ))),
    }
}
