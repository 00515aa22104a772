//! What tenants with a budget have spent, looked at while the server serves.

use std::collections::HashSet;
use std::time::Duration;

use super::Node;
use crate::http::problem::Problem;
use crate::meter::money::Hour;
use crate::meter::money::invoice::Row;
use crate::store::StoreError;

/// How often it is looked at.
const EVERY: Duration = Duration::from_millis(500);

impl Node {
    /// Looks at budgets for as long as it is polled.
    pub async fn keep_budgets(&self) {
        loop {
            let _ = tokio::time::timeout(EVERY, self.budgets.asked_again()).await;
            self.look_at_budgets().await;
        }
    }

    /// Looks at what tenants with a budget have spent up to now. Where that cannot be read, it is as it was.
    pub async fn look_at_budgets(&self) {
        if let Err(error) = self.try_to_look_at_budgets().await {
            tracing::warn!(%error, "what tenants have spent of their budgets is not known; that is tried again");
        }
    }

    async fn try_to_look_at_budgets(&self) -> Result<(), StoreError> {
        let tenants: HashSet<_> = self.budgets.tenants().into_iter().collect();
        if tenants.is_empty() {
            return Ok(());
        }
        let (now, prices) = (self.clock(), self.money.changes());
        // While this is held, nothing of what is in memory goes to the store: all of it is in one of the two.
        let live = self.meter.live(&self.store, |tenant| tenants.contains(tenant)).await?;
        for tenant in &tenants {
            let rows = live.rows.get(tenant).map(Vec::as_slice).unwrap_or_default();
            let wanted = self.budgets.wanted(tenant, now, prices, live.position);
            let stored = match &wanted {
                Some(wanted) => self.store.usage_by_hour(tenant, wanted.from, wanted.to).await?,
                None if rows.is_empty() => continue,
                None => vec![],
            };
            let stored = wanted.as_ref().zip(Some(&*stored));
            let tariff = self.money.tariff(tenant);
            self.budgets.take(tenant, (now, prices, live.position), stored, rows, &tariff);
        }
        Ok(())
    }

    /// What a tenant has used from one hour up to another.
    pub(super) async fn usage_of(&self, tenant: &str, from: Hour, to: Hour) -> Result<Vec<Row>, Problem> {
        self.meter.flush(&self.store).await?;
        Ok(self.store.usage_by_hour(tenant, from, to).await?)
    }

    /// The currency that a tenant pays in now, as its code.
    pub fn currency(&self, tenant: &str) -> String {
        let tariff = self.money.tariff(tenant);
        tariff.at(Hour::of(self.clock())).map_or_else(String::new, |terms| terms.currency.to_string())
    }

    /// Milliseconds since 1970, by the clock that usage records have.
    pub fn clock(&self) -> u64 {
        self.meter.now()
    }
}
