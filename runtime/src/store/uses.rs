//! When keys were last used: written now and then, and not with each use.

use sqlx::Row;

use super::{Store, StoreError, database};

impl Store {
    /// Keys' ids, each with when it was last used, in seconds since 1970.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub async fn key_uses(&self) -> Result<Vec<(String, i64)>, StoreError> {
        let rows = sqlx::query("SELECT id, used FROM key_uses").fetch_all(&self.database).await?;
        rows.iter().map(|row| Ok((row.try_get("id")?, row.try_get("used")?))).collect()
    }

    /// Keeps when these keys were last used.
    ///
    /// # Errors
    /// When the disk cannot take it.
    pub async fn keep_key_uses(&self, uses: &[(std::sync::Arc<str>, i64)]) -> Result<(), StoreError> {
        let mut transaction = database::begin(&self.database).await?;
        let write = "INSERT INTO key_uses (id, used) VALUES ($1, $2) \
                     ON CONFLICT (id) DO UPDATE SET used = excluded.used";
        for (id, used) in uses {
            sqlx::query(write).bind(&**id).bind(used).execute(&mut *transaction).await?;
        }
        let gone = "DELETE FROM key_uses WHERE id NOT IN (SELECT name FROM keys)";
        sqlx::query(gone).execute(&mut *transaction).await?;
        Ok(transaction.commit().await?)
    }
}
