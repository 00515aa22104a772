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

    /// Writes a definition, in place of the one of that name. On disk when it returns, with its version.
    ///
    /// # Errors
    /// When the disk cannot take it; the one before is untouched then.
    pub async fn put(&self, record: &T) -> Result<i64, StoreError> {
        let json = serde_json::to_string(record).map_err(|error| StoreError::Other(error.to_string()))?;
        let mut change = self.database.begin().await?;
        let version = put(&mut change, T::KIND, record.tenant(), record.name(), &json).await?;
        change.commit().await?;
        Ok(version)
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

    /// Removes a definition; none is fine.
    ///
    /// # Errors
    /// When the disk refuses; it is untouched then.
    pub async fn remove(&self, tenant: &str, name: &str) -> Result<(), StoreError> {
        let query = format!("DELETE FROM \"{}\" WHERE tenant = $1 AND name = $2", T::KIND);
        sqlx::query(AssertSqlSafe(query)).bind(tenant).bind(name).execute(&self.database).await?;
        Ok(())
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
