//! Up to which hour the webhook was told what was used.

use std::ops::Range;

use sqlx::Row;

use super::usage::number;
use super::{Store, StoreError, database};

impl Store {
    /// Which server's events are, and the first hour of which not all are taken. Where there is none yet, it is `first`.
    ///
    /// # Errors
    /// When the disk cannot be read, or does not take it.
    pub async fn webhook(&self, first: u64) -> Result<(String, u64), StoreError> {
        let read = "SELECT source, hour FROM webhook WHERE id = 1";
        if let Some(row) = sqlx::query(read).fetch_optional(&self.database).await? {
            let hour: i64 = row.try_get("hour")?;
            return Ok((row.try_get("source")?, u64::try_from(hour).unwrap_or_default()));
        }
        let source = crate::random::<8>().map_err(|error| StoreError::Other(error.to_string()))?;
        let source = hex::encode(source);
        let mut transaction = database::begin(&self.database).await?;
        let write = "INSERT INTO webhook (id, source, hour) VALUES (1, $1, $2)";
        sqlx::query(write).bind(&source).bind(number(first)).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok((source, first))
    }

    /// All events of hours before `next` are taken.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub async fn webhook_told(&self, next: u64) -> Result<(), StoreError> {
        let mut transaction = database::begin(&self.database).await?;
        let write = "UPDATE webhook SET hour = $1 WHERE id = 1";
        sqlx::query(write).bind(number(next)).execute(&mut *transaction).await?;
        Ok(transaction.commit().await?)
    }

    /// The first of these hours in which something was used.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub async fn usage_hour(&self, hours: Range<u64>) -> Result<Option<u64>, StoreError> {
        let read = "SELECT MIN(hour) AS hour FROM usage_hours WHERE hour >= $1 AND hour < $2";
        let query = sqlx::query(read).bind(number(hours.start)).bind(number(hours.end));
        let hour: Option<i64> = query.fetch_one(&self.database).await?.try_get("hour")?;
        Ok(hour.and_then(|hour| u64::try_from(hour).ok()))
    }

    /// The tenants that have used something in an hour, in order.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub async fn usage_tenants(&self, hour: u64) -> Result<Vec<String>, StoreError> {
        let read = "SELECT DISTINCT tenant FROM usage_hours WHERE hour = $1 ORDER BY tenant";
        let rows = sqlx::query(read).bind(number(hour)).fetch_all(&self.database).await?;
        rows.iter().map(|row| Ok(row.try_get("tenant")?)).collect()
    }
}
