//! What was recorded and is not yet in the store's sums, as money is made of it.

use std::collections::HashMap;
use std::sync::Arc;

use super::Meter;
use super::ledger::Position;
use super::money::invoice::Row;
use super::rollup::Held;
use crate::store::{Store, StoreError};

/// Usage that is in memory alone. While this is held the store gets none of it, so that what is read of the store meanwhile is
/// all the rest.
pub struct Live<'a> {
    /// Up to where in the log the store's sums go.
    pub position: Position,
    /// By tenant.
    pub rows: HashMap<Arc<str>, Vec<Row>>,
    _held: Option<Held<'a>>,
}

impl Meter {
    /// Usage of the tenants that are wanted. Sums that did not get through to the store go there first.
    ///
    /// # Errors
    /// When the store does not take those.
    pub async fn live(&self, store: &Store, wanted: impl Fn(&str) -> bool) -> Result<Live<'_>, StoreError> {
        let mut live = Live { position: Position::default(), rows: HashMap::new(), _held: None };
        let Some(kept) = &self.kept else { return Ok(live) };
        let held = loop {
            match kept.rollup.hold().await {
                Some(held) => break held,
                None => self.flush(store).await?,
            }
        };
        let book = kept.book();
        let (position, totals) = book.since();
        for (key, sums) in totals.iter().filter(|(key, _)| wanted(&key.tenant)) {
            live.rows.entry(Arc::clone(&key.tenant)).or_default().push(Row::of(key, sums));
        }
        live.position = position;
        drop(book);
        live._held = Some(held);
        Ok(live)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::config::MeteringConfig;
    use crate::meter::money::Hour;
    use crate::meter::totals::tests::call;

    #[tokio::test]
    async fn usage_is_in_memory_or_in_the_store_and_never_in_both() {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(data.path(), &[]).await.unwrap();
        let config = MeteringConfig::default();
        let meter = Meter::open(data.path(), store.usage_position().await.unwrap(), &config).unwrap();
        let record = |tenant: &str| meter.record(&mut call(tenant, 0, 0)).unwrap();
        let calls = |rows: &[Row]| rows.iter().map(|row| row.sums.calls).sum::<u64>();
        let both = async || {
            let live = meter.live(&store, |tenant| tenant == "t").await.unwrap();
            let stored = store.usage_by_hour("t", Hour(0), Hour(u64::MAX)).await.unwrap();
            assert!(!live.rows.contains_key("u"), "nobody wants it");
            (live.rows.get("t").map_or(0, |rows| calls(rows)), calls(&stored), live.position)
        };
        ["t", "u", "t"].into_iter().for_each(record);
        let (live, stored, before) = both().await;
        assert_eq!((live, stored), (2, 0));
        meter.flush(&store).await.unwrap();
        let (live, stored, after) = both().await;
        assert_eq!((live, stored), (0, 2));
        assert_ne!(before, after);
        record("t");
        assert_eq!(both().await, (1, 2, after));
        let held = meter.live(&store, |_| true).await.unwrap();
        assert!(meter.flush(&store).now_or_never().is_none(), "it waits");
        drop(held);
        meter.flush(&store).await.unwrap();
        let (live, stored, _) = both().await;
        assert_eq!((live, stored), (0, 3));
    }
}
