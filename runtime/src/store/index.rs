//! Definitions: one table per kind, one row each, so that a change costs the same however many there are.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{AssertSqlSafe, Row};

use super::StoreError;
use super::database::{Connection, Pool};

/// A definition that the index keeps.
pub trait Record: Serialize + DeserializeOwned {
    /// The kind's table.
    const KIND: &'static str;
    fn tenant(&self) -> &str;
    fn name(&self) -> &str;
}

/// A definition as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept<T> {
    pub record: T,
    /// 1 when it was new, and one more with each change since.
    pub version: i64,
}

/// The definitions of one kind.
pub struct Index<T> {
    database: Pool,
    _records: PhantomData<fn() -> T>,
}

impl<T: Record> Index<T> {
    pub(super) fn new(database: Pool) -> Self {
        Self { database, _records: PhantomData }
    }

    /// Reads one definition, if it is there.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub async fn get(&self, tenant: &str, name: &str) -> Result<Option<Kept<T>>, StoreError> {
        let query = format!("SELECT record, version FROM \"{}\" WHERE tenant = $1 AND name = $2", T::KIND);
        let row = sqlx::query(AssertSqlSafe(query)).bind(tenant).bind(name);
        let Some(row) = row.fetch_optional(&self.database).await? else { return Ok(None) };
        let record = serde_json::from_str(row.try_get("record")?).map_err(|error| {
            StoreError::Other(format!("{} {tenant}/{name} is not understood: {error}", T::KIND))
        })?;
        Ok(Some(Kept { record, version: row.try_get("version")? }))
    }

    /// All definitions, and whether these are all: one that cannot be understood is named in the log and left alone.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub async fn all(&self) -> Result<(Vec<T>, bool), StoreError> {
        let query = format!("SELECT tenant, name, record FROM \"{}\" ORDER BY tenant, name", T::KIND);
        let rows = sqlx::query(AssertSqlSafe(query)).fetch_all(&self.database).await?;
        let (mut records, mut whole) = (Vec::with_capacity(rows.len()), true);
        for row in rows {
            match serde_json::from_str(row.try_get("record")?) {
                Ok(record) => records.push(record),
                Err(error) => {
                    let (tenant, name): (&str, &str) = (row.try_get("tenant")?, row.try_get("name")?);
                    tracing::error!(kind = T::KIND, tenant, name, %error, "a definition is not readable");
                    whole = false;
                }
            }
        }
        Ok((records, whole))
    }
}

/// Writes a definition as part of a change, and gives its version.
pub(super) async fn put(
    change: &mut Connection,
    kind: &str,
    tenant: &str,
    name: &str,
    json: &str,
) -> Result<i64, sqlx::Error> {
    let write = format!(
        "INSERT INTO \"{kind}\" AS kept (tenant, name, record, version) VALUES ($1, $2, $3, 1) \
         ON CONFLICT (tenant, name) DO UPDATE SET record = excluded.record, version = kept.version + 1"
    );
    sqlx::query(AssertSqlSafe(write)).bind(tenant).bind(name).bind(json).execute(&mut *change).await?;
    let read = format!("SELECT version FROM \"{kind}\" WHERE tenant = $1 AND name = $2");
    sqlx::query_scalar(AssertSqlSafe(read)).bind(tenant).bind(name).fetch_one(change).await
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::change::Change;
    use super::super::database;
    use super::*;
    use crate::audit::Actor;

    /// A kind that shares a table with functions.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
    pub struct Thing {
        pub tenant: String,
        pub name: String,
        pub says: String,
    }

    impl Record for Thing {
        const KIND: &'static str = "functions";

        fn tenant(&self) -> &str {
            &self.tenant
        }

        fn name(&self) -> &str {
            &self.name
        }
    }

    pub fn thing(tenant: &str, name: &str, says: &str) -> Thing {
        Thing { tenant: tenant.to_owned(), name: name.to_owned(), says: says.to_owned() }
    }

    async fn index(data: &tempfile::TempDir) -> Index<Thing> {
        Index::new(database::open(data.path()).await.unwrap())
    }

    impl Index<Thing> {
        /// A change of its own.
        pub async fn put(&self, thing: &Thing) -> i64 {
            let mut change = Change::begin(&self.database).await.unwrap();
            let version = change.put(thing).await.unwrap();
            change.commit(&Actor::server("test")).await.unwrap();
            version
        }

        async fn remove(&self, tenant: &str, name: &str) {
            let mut change = Change::begin(&self.database).await.unwrap();
            change.remove::<Thing>(tenant, name).await.unwrap();
            change.commit(&Actor::server("test")).await.unwrap();
        }
    }

    #[tokio::test]
    async fn definitions_are_put_found_changed_and_removed() {
        let data = tempfile::tempdir().unwrap();
        let things = index(&data).await;
        assert_eq!(things.get("t", "a").await.unwrap(), None);
        let quoted = "it's \"quoted\"; DROP TABLE functions; -- \u{1F980}";
        assert_eq!(things.put(&thing("t", "a", "one")).await, 1);
        assert_eq!(things.put(&thing("u", "a", quoted)).await, 1, "another tenant's");
        assert_eq!(things.put(&thing("t", "a", "two")).await, 2);
        assert_eq!(things.put(&thing("t", "a", "two")).await, 3, "the same is a change as well");
        let kept = things.get("t", "a").await.unwrap().unwrap();
        assert_eq!(kept, Kept { record: thing("t", "a", "two"), version: 3 });
        things.remove("t", "b").await;
        assert_eq!(
            things.all().await.unwrap(),
            (vec![thing("t", "a", "two"), thing("u", "a", quoted)], true)
        );
        things.remove("t", "a").await;
        assert_eq!(things.get("t", "a").await.unwrap(), None);
        things.database.close().await;
        let again = index(&data).await;
        assert_eq!(again.all().await.unwrap(), (vec![thing("u", "a", quoted)], true));
    }

    #[tokio::test]
    async fn each_of_many_writers_at_one_time_counts() {
        let data = tempfile::tempdir().unwrap();
        let things = index(&data).await;
        let puts = (0..50).map(|number| {
            let things = &things;
            async move { things.put(&thing("t", "a", &number.to_string())).await }
        });
        let mut versions = futures::future::join_all(puts).await;
        versions.sort_unstable();
        assert_eq!(versions, (1..=50).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_change_that_is_dropped_leaves_nothing() {
        let data = tempfile::tempdir().unwrap();
        let things = index(&data).await;
        let mut change = Change::begin(&things.database).await.unwrap();
        change.put(&thing("t", "a", "one")).await.unwrap();
        drop(change);
        assert_eq!(things.all().await.unwrap(), (vec![], true));
        assert_eq!(things.put(&thing("t", "a", "two")).await, 1);
    }

    #[tokio::test]
    async fn what_is_not_understood_is_told_and_left_alone() {
        let data = tempfile::tempdir().unwrap();
        let things = index(&data).await;
        things.put(&thing("t", "a", "")).await;
        let mut change = things.database.begin().await.unwrap();
        put(&mut change, "functions", "t", "b", r#"{"tenant": "t"}"#).await.unwrap();
        change.commit().await.unwrap();
        assert_eq!(things.all().await.unwrap(), (vec![thing("t", "a", "")], false));
        let error = things.get("t", "b").await.unwrap_err().to_string();
        assert!(error.contains("functions t/b is not understood"), "{error}");
    }
}
