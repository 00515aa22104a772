//! All cards, tenants' billing and credits, in memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use dashmap::DashMap;

use super::card::RateCard;
use super::credit::Credit;
use super::{Billing, BillingRecord, Cards, Tariff};

/// What is kept of money.
#[derive(Default)]
pub struct Money {
    cards: RwLock<Cards>,
    billing: DashMap<Arc<str>, Vec<Billing>>,
    credits: DashMap<Arc<str>, Vec<Credit>>,
    /// Those that were asked for since the last change.
    tariffs: DashMap<Arc<str>, Arc<Tariff>>,
    /// Of prices.
    changes: AtomicU64,
}

impl Money {
    /// All rate cards.
    pub fn cards(&self) -> Cards {
        self.cards.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn card(&self, name: &str) -> Option<Arc<RateCard>> {
        self.cards.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub fn put_card(&self, card: RateCard) {
        let mut cards = self.cards.write().unwrap_or_else(PoisonError::into_inner);
        cards.insert(card.name.clone(), Arc::new(card));
        drop(cards);
        self.changed();
    }

    /// How a tenant is billed, where that is set.
    pub fn billing(&self, tenant: &str) -> Vec<Billing> {
        self.billing.get(tenant).map(|billing| billing.clone()).unwrap_or_default()
    }

    /// How each tenant is billed for whom that is set.
    pub fn all_billing(&self) -> Vec<(Arc<str>, Vec<Billing>)> {
        self.billing.iter().map(|of| (Arc::clone(of.key()), of.value().clone())).collect()
    }

    pub fn put_billing(&self, BillingRecord { tenant, versions }: BillingRecord) {
        self.billing.insert(tenant.into(), versions);
        self.changed();
    }

    /// The credits that a tenant was given.
    pub fn credits(&self, tenant: &str) -> Vec<Credit> {
        self.credits.get(tenant).map(|credits| credits.clone()).unwrap_or_default()
    }

    pub fn put_credit(&self, credit: Credit) {
        self.credits.entry(credit.tenant.as_str().into()).or_default().push(credit);
    }

    fn changed(&self) {
        // After this no tariff that is made is of what was before, and none that was is kept.
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.tariffs.clear();
    }

    /// How often prices have changed: what is made of a tariff is old when this is another.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// What holds for a tenant.
    pub fn tariff(&self, tenant: &str) -> Arc<Tariff> {
        if let Some(tariff) = self.tariffs.get(tenant) {
            return Arc::clone(&tariff);
        }
        let changes = self.changes();
        let tariff = Arc::new(Tariff::new(&self.cards(), &self.billing(tenant)));
        self.tariffs.insert(tenant.into(), Arc::clone(&tariff));
        if self.changes() != changes {
            self.tariffs.remove(tenant);
        }
        tariff
    }
}
