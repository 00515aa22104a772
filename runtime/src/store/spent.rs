//! Usage as money is made of it: by hour and device, for one tenant.

use sqlx::{AssertSqlSafe, Row as _};

use super::{Store, StoreError};
use crate::meter::money::invoice::Row;
use crate::meter::money::{Hour, Unit};
use crate::meter::record::Outcome;
use crate::meter::totals::Sums;

impl Store {
    /// What a tenant has used from one hour up to another, by hour and device, in the order of hours: what has a price of it.
    ///
    /// # Errors
    /// When the disk cannot give it.
    pub async fn usage_by_hour(&self, tenant: &str, from: Hour, to: Hour) -> Result<Vec<Row>, StoreError> {
        // Of one hour they fit: a machine's whole memory over an hour is far below 2^63 bytes × milliseconds.
        let sum = |unit: &Unit| match unit {
            // As `Row::of` has it.
            Unit::MillionCalls => {
                format!("SUM(CASE WHEN outcome = '{}' THEN 0 ELSE calls END)", Outcome::Refused.name())
            }
            _ => format!("SUM({})", unit.field()),
        };
        let sums: Vec<String> = Unit::ALL.iter().map(sum).collect();
        let query = format!(
            "SELECT hour, device, {} FROM usage_hours WHERE tenant = $1 AND hour >= $2 AND hour < $3 \
             GROUP BY hour, device ORDER BY hour, device",
            sums.join(", ")
        );
        let number = |hour: Hour| i64::try_from(hour.0).unwrap_or(i64::MAX);
        let rows = sqlx::query(AssertSqlSafe(query)).bind(tenant).bind(number(from)).bind(number(to));
        let rows = rows.fetch_all(&self.database).await?;
        let row = |row: &sqlx::sqlite::SqliteRow| {
            let mut sums = Sums::default();
            for (index, unit) in Unit::ALL.iter().enumerate() {
                let counted: i64 = row.try_get(index + 2)?;
                *unit.counted_in(&mut sums) = counted.unsigned_abs();
            }
            let hour: i64 = row.try_get("hour")?;
            let device: &str = row.try_get("device")?;
            Ok(Row { hour: Hour(hour.unsigned_abs()), device: device.into(), sums })
        };
        rows.iter().map(row).collect()
    }
}
