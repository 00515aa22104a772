//! The way of sums from memory into the store: each batch once, whatever fails on the way.
//!
//! A batch is of the records from one place of the log up to another. The store adds it and notes the second place in one
//! transaction. One that it did not take, or of which it is not known, stays here as it is and goes first the next time; what
//! was recorded meanwhile is in the next batch.

use tokio::sync::{Mutex, MutexGuard};

use super::ledger::Position;
use super::totals::Totals;
use crate::store::{Store, StoreError};

/// Sums of the records from one place of the log up to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub totals: Totals,
    pub from: Position,
    pub to: Position,
}

/// Brings sums into the store.
#[derive(Debug, Default)]
pub struct Rollup(Mutex<Option<Batch>>);

/// While it is held, no sums go to the store. There are none under way.
pub struct Held<'a> {
    _under_way: MutexGuard<'a, Option<Batch>>,
}

impl Rollup {
    /// Keeps sums from going to the store for as long as it is held. None where some are under way of which it is not known
    /// whether they are there: see [`Self::flush`].
    pub async fn hold(&self) -> Option<Held<'_>> {
        let under_way = self.0.lock().await;
        under_way.is_none().then_some(Held { _under_way: under_way })
    }

    /// Adds what could not be added before, and then what `take` gives: all that was recorded since it was asked last. Before
    /// something is added, `sync` has the disk take the log up to there: sums of what a power cut loses would stay.
    ///
    /// # Errors
    /// When the store or the disk does not take it. It is not lost: the next flush begins with it.
    pub async fn flush<F: Future<Output = Result<(), StoreError>>>(
        &self,
        store: &Store,
        take: impl FnOnce() -> Batch,
        sync: impl Fn() -> F,
    ) -> Result<(), StoreError> {
        let mut under_way = self.0.lock().await;
        let add = async |under_way: &mut Option<Batch>| {
            if let Some(batch) = under_way {
                sync().await?;
                store.add_usage(batch).await?;
                *under_way = None;
            }
            Ok(())
        };
        add(&mut *under_way).await?;
        // Noted before it is added: whoever waits may go away.
        *under_way = Some(take()).filter(|batch| batch.from != batch.to);
        add(&mut *under_way).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::filter::Filter;
    use crate::meter::totals::tests::call;
    use crate::store::Enough;

    fn at(offset: u64) -> Position {
        Position { segment: 1, offset }
    }

    fn batch(from: u64, to: u64) -> Batch {
        let mut totals = Totals::default();
        (from..to).for_each(|_| totals.add(&call("t", 5, 0)));
        Batch { totals, from: if from == 0 { Position::default() } else { at(from) }, to: at(to) }
    }

    async fn synced() -> Result<(), StoreError> {
        Ok(())
    }

    async fn calls(store: &Store) -> u64 {
        let mut calls = 0;
        let each = |_, sums: crate::meter::totals::Sums| {
            calls += sums.calls;
            Enough::No
        };
        store.usage(0..u64::MAX, &Filter::default(), each).await.unwrap();
        calls
    }

    #[tokio::test]
    async fn a_flush_that_failed_or_was_given_up_is_made_good_by_the_next() {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(data.path(), &[]).await.unwrap();
        let rollup = Rollup::default();
        rollup.flush(&store, || batch(0, 3), synced).await.unwrap();
        // Given up in the middle.
        tokio::select! {
            biased;
            result = rollup.flush(&store, || batch(3, 5), synced) => panic!("{result:?}"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(calls(&store).await, 3);
        rollup.flush(&store, || batch(5, 9), synced).await.unwrap();
        assert_eq!(calls(&store).await, 9);
        rollup.flush(&store, || Batch { totals: Totals::default(), ..batch(9, 9) }, synced).await.unwrap();

        // The store fails; nothing more is taken while something is left.
        store.close().await;
        assert!(rollup.flush(&store, || batch(9, 10), synced).await.is_err());
        assert!(rollup.flush(&store, || panic!("asked for more"), synced).await.is_err());
        drop(store);
        let store = Store::open(data.path(), &[]).await.unwrap();
        rollup.flush(&store, || batch(10, 12), synced).await.unwrap();
        assert_eq!(calls(&store).await, 12);
        assert_eq!(store.usage_position().await.unwrap(), at(12));
    }

    #[tokio::test]
    async fn a_batch_that_was_added_before_its_answer_was_lost_is_not_added_again() {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(data.path(), &[]).await.unwrap();
        let rollup = Rollup::default();
        *rollup.0.lock().await = Some(batch(0, 3));
        store.add_usage(&batch(0, 3)).await.unwrap();
        rollup.flush(&store, || batch(3, 4), synced).await.unwrap();
        assert_eq!(calls(&store).await, 4);
    }
}
