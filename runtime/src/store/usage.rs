//! Sums of usage by hour, and the place of the log of records up to which they go.

use std::fmt::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row};

use super::database::{self, Connection};
use super::{Store, StoreError};
use crate::meter::filter::Filter;
use crate::meter::ledger::Position;
use crate::meter::record::{Kind, Outcome};
use crate::meter::rollup::Batch;
use crate::meter::totals::{Key, QUANTITIES, Sums, Totals};

/// What a row is found by, in the order in which it is bound and read.
const KEY: [&str; 10] =
    ["hour", "tenant", "kind", "function", "revision", "key_id", "class", "outcome", "device", "model"];

/// Adds a row to the one that has its key, and says whether a sum of it is the largest that the store has. A sum that would
/// pass that stays there.
static ADD: LazyLock<String> = LazyLock::new(|| {
    let quantities = || QUANTITIES.iter().map(|quantity| quantity.name);
    let columns: Vec<&str> = KEY.into_iter().chain(quantities()).collect();
    let places: Vec<String> = (1..=columns.len()).map(|number| format!("${number}")).collect();
    let (most, key) = (i64::MAX, KEY.join(", "));
    let sums: Vec<String> = QUANTITIES
        .iter()
        .map(|quantity| {
            let name = quantity.name;
            match quantity.is_a_peak {
                true => format!(
                    "{name} = CASE WHEN kept.{name} > excluded.{name} THEN kept.{name} ELSE excluded.{name} END"
                ),
                false => format!(
                    "{name} = CASE WHEN kept.{name} > {most} - excluded.{name} THEN {most} \
                     ELSE kept.{name} + excluded.{name} END"
                ),
            }
        })
        .collect();
    let full: Vec<String> = quantities().map(|name| format!("{name} = {most}")).collect();
    format!(
        "INSERT INTO usage_hours AS kept ({}) VALUES ({}) ON CONFLICT ({key}) DO UPDATE SET {} \
         RETURNING CASE WHEN {} THEN 1 ELSE 0 END",
        columns.join(", "),
        places.join(", "),
        sums.join(", "),
        full.join(" OR "),
    )
});

/// What is asked for, by column.
fn narrowed(filter: &Filter) -> impl Iterator<Item = (&'static str, &str)> {
    let Filter { tenant, function, key, class, device, model, outcome } = filter;
    let texts = [
        ("tenant", tenant),
        ("function", function),
        ("key_id", key),
        ("class", class),
        ("device", device),
        ("model", model),
    ];
    let texts = texts.into_iter().filter_map(|(column, text)| Some((column, text.as_deref()?)));
    texts.chain(outcome.map(|outcome| ("outcome", outcome.name())))
}

impl Store {
    /// Up to where in the log of records the sums go.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub async fn usage_position(&self) -> Result<Position, StoreError> {
        let mut connection = self.database.acquire().await?;
        position(&mut connection).await
    }

    /// Adds sums to those of the same keys, and notes up to where they go, all in one transaction. Sums that are in it
    /// already are not added again.
    ///
    /// # Errors
    /// When the disk cannot take it, or the sums are not of what comes next in the log; nothing has changed then.
    pub async fn add_usage(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut transaction = database::begin(&self.database).await?;
        let kept = position(&mut transaction).await?;
        if kept == batch.to && batch.from != batch.to {
            return Ok(());
        }
        if kept != batch.from {
            return Err(StoreError::Other(format!(
                "sums of usage from {:?} to {:?} cannot be added to those up to {kept:?}",
                batch.from, batch.to
            )));
        }
        let mut full = 0_i64;
        for (key, sums) in batch.totals.iter() {
            full += add(&mut transaction, key, sums).await?;
        }
        let write = "INSERT INTO usage_position (id, segment, place) VALUES (1, $1, $2) \
                     ON CONFLICT (id) DO UPDATE SET segment = excluded.segment, place = excluded.place";
        let (segment, place) = (number(batch.to.segment), number(batch.to.offset));
        sqlx::query(write).bind(segment).bind(place).execute(&mut *transaction).await?;
        transaction.commit().await?;
        if full > 0 {
            tracing::error!(
                rows = full,
                "sums of usage are larger than the store can have: they are too small"
            );
        }
        Ok(())
    }

    /// Gives sums that were asked for to `each`, hour by hour, until it has enough. Hours are whole ones since 1970.
    ///
    /// # Errors
    /// When the disk cannot be read, or has what is not understood.
    pub async fn usage(
        &self,
        hours: Range<u64>,
        filter: &Filter,
        mut each: impl FnMut(Key, Sums) -> Enough,
    ) -> Result<(), StoreError> {
        use futures::TryStreamExt;
        let mut query = "SELECT * FROM usage_hours WHERE hour >= $1 AND hour < $2".to_owned();
        for (at, (column, _)) in narrowed(filter).enumerate() {
            // Writing to a string does not fail.
            let _ = write!(query, " AND {column} = ${}", at + 3);
        }
        query += " ORDER BY hour";
        let mut rows = sqlx::query(AssertSqlSafe(query)).bind(number(hours.start)).bind(number(hours.end));
        for (_, text) in narrowed(filter) {
            rows = rows.bind(text);
        }
        let mut rows = rows.fetch(&self.database);
        while let Some(row) = rows.try_next().await? {
            let (key, sums) = read(&row)?;
            if each(key, sums) == Enough::Yes {
                break;
            }
        }
        Ok(())
    }
}

/// The sums of a data directory, and the place of the log up to which they go, as of one moment; also while a server has it.
///
/// # Errors
/// When there is no database, or it cannot be read.
pub async fn usage_of(root: &Path) -> anyhow::Result<(Position, Totals)> {
    use anyhow::Context;
    let path = root.join(database::FILE);
    std::fs::metadata(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    let pool = database::open(root).await?;
    let mut moment = pool.begin().await?;
    let place = position(&mut moment).await?;
    let rows = sqlx::query("SELECT * FROM usage_hours").fetch_all(&mut *moment).await?;
    drop(moment);
    pool.close().await;
    Ok((place, rows.iter().map(read).collect::<Result<_, _>>()?))
}

/// Whether whoever gets rows wants no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enough {
    Yes,
    No,
}

/// A number as the store has it.
pub fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

async fn position(connection: &mut Connection) -> Result<Position, StoreError> {
    let row = sqlx::query("SELECT segment, place FROM usage_position WHERE id = 1");
    let Some(row) = row.fetch_optional(connection).await? else { return Ok(Position::default()) };
    Ok(Position { segment: unsigned(&row, "segment")?, offset: unsigned(&row, "place")? })
}

/// Adds one row, and says whether (1) or not (0) a sum of it is as large as can be.
async fn add(transaction: &mut Connection, key: &Key, sums: &Sums) -> Result<i64, sqlx::Error> {
    let mut row = sqlx::query_scalar(ADD.as_str())
        .bind(number(key.hour))
        .bind(&*key.tenant)
        .bind(key.kind.name())
        .bind(&*key.function)
        .bind(number(key.revision))
        .bind(&*key.key)
        .bind(&*key.class)
        .bind(key.outcome.name())
        .bind(&*key.device)
        .bind(&*key.model);
    for sum in sums.values() {
        row = row.bind(number(sum));
    }
    row.fetch_one(transaction).await
}

fn unsigned(row: &SqliteRow, column: &'static str) -> Result<u64, StoreError> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|_| strange(column, &number.to_string()))
}

fn strange(column: &str, value: &str) -> StoreError {
    StoreError::Other(format!("a sum of usage has the {column} `{value}`, which is not understood"))
}

fn read(row: &SqliteRow) -> Result<(Key, Sums), StoreError> {
    let text = |column: &'static str| row.try_get::<&str, _>(column);
    let shared = |column| text(column).map(Arc::<str>::from);
    let (kind, outcome) = (text("kind")?, text("outcome")?);
    let key = Key {
        hour: unsigned(row, "hour")?,
        tenant: shared("tenant")?,
        kind: Kind::ALL.into_iter().find(|is| is.name() == kind).ok_or_else(|| strange("kind", kind))?,
        function: shared("function")?,
        revision: unsigned(row, "revision")?,
        key: shared("key_id")?,
        class: shared("class")?,
        outcome: Outcome::ALL
            .into_iter()
            .find(|is| is.name() == outcome)
            .ok_or_else(|| strange("outcome", outcome))?,
        device: shared("device")?,
        model: shared("model")?,
    };
    let mut sums = [0; QUANTITIES.len()];
    for (sum, quantity) in sums.iter_mut().zip(&QUANTITIES) {
        *sum = unsigned(row, quantity.name)?;
    }
    Ok((key, Sums::of(sums)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::totals::tests::{call, with_use};

    fn at(offset: u64) -> Position {
        Position { segment: 1, offset }
    }

    async fn all(store: &Store, hours: Range<u64>, filter: Filter) -> Totals {
        let mut rows = vec![];
        let each = |key, sums| {
            rows.push((key, sums));
            Enough::No
        };
        store.usage(hours, &filter, each).await.unwrap();
        assert!(rows.is_sorted_by_key(|(key, _)| key.hour));
        rows.into_iter().collect()
    }

    const EVER: Range<u64> = 0..u64::MAX;

    fn totals(records: &[crate::meter::record::Record]) -> Totals {
        let mut totals = Totals::default();
        records.iter().for_each(|record| totals.add(record));
        totals
    }

    #[tokio::test]
    async fn sums_are_added_and_the_same_ones_only_once() {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(data.path(), &[]).await.unwrap();
        assert_eq!(store.usage_position().await.unwrap(), Position::default());
        let record = with_use(call("t", 5, 0), "cpu", "m", 7);
        let first =
            Batch { totals: totals(std::slice::from_ref(&record)), from: Position::default(), to: at(10) };
        store.add_usage(&first).await.unwrap();
        store.add_usage(&first).await.unwrap();
        assert_eq!(all(&store, EVER, Filter::default()).await, first.totals);
        assert_eq!(store.usage_position().await.unwrap(), at(10));

        let second = totals(&[record.clone(), call("u", 6, 0)]);
        let second = Batch { totals: second, from: at(10), to: at(20) };
        store.add_usage(&second).await.unwrap();
        store.add_usage(&second).await.unwrap();
        let whole = totals(&[record.clone(), record.clone(), call("u", 6, 0)]);
        assert_eq!(all(&store, EVER, Filter::default()).await, whole);

        // What is before, or leaves something out, is refused and changes nothing.
        for (from, to) in [(Position::default(), at(10)), (at(10), at(30)), (at(30), at(40))] {
            let wrong = Batch { totals: second.totals.clone(), from, to };
            let refused = store.add_usage(&wrong).await.unwrap_err().to_string();
            assert!(refused.contains("cannot be added to those up to"), "{refused}");
        }
        // Also after another start.
        store.close().await;
        drop(store);
        let store = Store::open(data.path(), &[]).await.unwrap();
        assert_eq!(store.usage_position().await.unwrap(), at(20));
        assert_eq!(all(&store, EVER, Filter::default()).await, whole);
    }

    #[tokio::test]
    async fn a_crash_before_the_commit_leaves_neither_sums_nor_the_position() {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(data.path(), &[]).await.unwrap();
        let totals = totals(&[call("t", 5, 0)]);
        {
            let mut transaction = database::begin(&store.database).await.unwrap();
            for (key, sums) in totals.iter() {
                assert_eq!(add(&mut transaction, key, sums).await.unwrap(), 0);
            }
        }
        assert_eq!(all(&store, EVER, Filter::default()).await.len(), 0);
        // One that is given up in the middle does the same.
        let many: Totals = (0..200)
            .map(|hour| call("t", hour, 0))
            .map(|record| self::totals(&[record]))
            .fold(Totals::default(), |mut all, one| {
                all.merge(one);
                all
            });
        let batch = Batch { totals: many, from: Position::default(), to: at(10) };
        tokio::select! {
            biased;
            result = store.add_usage(&batch) => panic!("{result:?}"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(all(&store, EVER, Filter::default()).await.len(), 0);
        assert_eq!(store.usage_position().await.unwrap(), Position::default());
        store.add_usage(&batch).await.unwrap();
        assert_eq!(all(&store, EVER, Filter::default()).await, batch.totals);
    }

    #[tokio::test]
    async fn sums_are_found_by_all_that_they_are_kept_apart_by() {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(data.path(), &[]).await.unwrap();
        let mut failed = call("t", 7, 0);
        failed.outcome = Outcome::Failed;
        failed.key = None;
        let records = [with_use(call("t", 5, 0), "cpu", "m", 7), call("u", 6, 0), failed];
        let batch = Batch { totals: totals(&records), from: Position::default(), to: at(10) };
        store.add_usage(&batch).await.unwrap();
        let text = |text: &str| Some(text.to_owned());
        for (hours, filter, rows) in [
            (EVER, Filter::default(), 4),
            (6..u64::MAX, Filter::default(), 2),
            (0..6, Filter::default(), 2),
            (EVER, Filter { tenant: text("t"), ..Filter::default() }, 3),
            (EVER, Filter { tenant: text("t"), device: text(""), ..Filter::default() }, 2),
            (EVER, Filter { device: text("cpu"), model: text("m"), ..Filter::default() }, 1),
            (EVER, Filter { outcome: Some(Outcome::Failed), ..Filter::default() }, 1),
            (EVER, Filter { key: text(""), ..Filter::default() }, 1),
            (
                EVER,
                Filter { key: text("k1"), function: text("f"), class: text("standard"), ..Filter::default() },
                3,
            ),
            (EVER, Filter { function: text("g' OR 1=1 --"), ..Filter::default() }, 0),
        ] {
            assert_eq!(all(&store, hours, filter.clone()).await.len(), rows, "{filter:?}");
        }
        let mut seen = 0;
        let each = |_, _| {
            seen += 1;
            Enough::Yes
        };
        store.usage(EVER, &Filter::default(), each).await.unwrap();
        assert_eq!(seen, 1);
    }

    #[tokio::test]
    async fn a_sum_that_is_too_large_stays_at_the_largest() {
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(data.path(), &[]).await.unwrap();
        let largest = u64::try_from(i64::MAX).unwrap();
        let mut sum = 0;
        for (more, wall_ns, then) in
            [(1, largest - 5, largest - 5), (2, 4, largest - 1), (3, 7, largest), (4, u64::MAX, largest)]
        {
            let record = crate::meter::record::Record { wall_ns, ..call("t", 5, 0) };
            let batch = Batch { totals: totals(&[record]), from: at(sum), to: at(more) };
            let batch = if more == 1 { Batch { from: Position::default(), ..batch } } else { batch };
            store.add_usage(&batch).await.unwrap();
            sum = more;
            assert_eq!(all(&store, EVER, Filter::default()).await.iter().next().unwrap().1.wall_ns, then);
        }
    }
}
