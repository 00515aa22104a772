//! Usage summed up as it is asked for: by time and by what calls have in common.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Meter;
use super::find::{Wish, find};
use super::ledger::Position;
use super::money::{Hour, Month};
use super::totals::{HOUR, Key, Sums, Totals};
use crate::store::{Enough, Store, StoreError};

/// The most rows of an answer, before it is given in pages.
const ROWS: usize = 100_000;

/// The longest time that is looked at by the minute, for which the records themselves are read.
pub const BY_MINUTE: Duration = Duration::from_secs(24 * 3600);
/// And the most parts of the log that are read for it.
const PARTS: usize = 64;
/// Records of a part.
const PART: usize = 10_000;

/// What usage may be summed up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    Tenant,
    Kind,
    Function,
    Revision,
    Key,
    Class,
    Outcome,
    Device,
    Model,
}

impl Dimension {
    pub const ALL: [Self; 9] = [
        Self::Tenant,
        Self::Kind,
        Self::Function,
        Self::Revision,
        Self::Key,
        Self::Class,
        Self::Outcome,
        Self::Device,
        Self::Model,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Kind => "kind",
            Self::Function => "function",
            Self::Revision => "revision",
            Self::Key => "key",
            Self::Class => "class",
            Self::Outcome => "outcome",
            Self::Device => "device",
            Self::Model => "model",
        }
    }

    /// What sums are kept apart by it: the text of a key; empty where it has none.
    pub fn of(self, key: &Key) -> String {
        match self {
            Self::Tenant => key.tenant.to_string(),
            Self::Kind => key.kind.name().to_owned(),
            Self::Function => key.function.to_string(),
            Self::Revision => key.revision.to_string(),
            Self::Key => key.key.to_string(),
            Self::Class => key.class.to_string(),
            Self::Outcome => key.outcome.name().to_owned(),
            Self::Device => key.device.to_string(),
            Self::Model => key.model.to_string(),
        }
    }
}

/// The spans of time that usage is summed up in, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bucket {
    Minute,
    Hour,
    Day,
    Month,
}

impl Bucket {
    /// Where the span begins that a moment is in. Both are milliseconds since 1970.
    pub fn start(self, moment: u64) -> u64 {
        const MINUTE: u64 = 60_000;
        match self {
            Self::Minute => moment / MINUTE * MINUTE,
            Self::Hour => moment / HOUR * HOUR,
            Self::Day => moment / (24 * HOUR) * (24 * HOUR),
            Self::Month => month_of(moment),
        }
    }

    /// Where the span ends that begins there.
    pub fn end(self, start: u64) -> u64 {
        match self {
            Self::Minute => start + 60_000,
            Self::Hour => start + HOUR,
            Self::Day => start + 24 * HOUR,
            Self::Month => Month::of(Hour::of(start)).end().millis(),
        }
    }
}

/// Where the month begins that a moment is in. Both are milliseconds since 1970.
pub fn month_of(moment: u64) -> u64 {
    Month::of(Hour::of(moment)).start().millis()
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What is looked at. Its times are milliseconds, and whole hours but by the minute.
    pub wish: Wish,
    pub by: Vec<Dimension>,
    pub bucket: Option<Bucket>,
}

/// Sums of what has these in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Where its span of time begins, in milliseconds since 1970; where all begins, without spans.
    pub start: u64,
    /// In the order in which they were asked for.
    pub by: Vec<String>,
    pub sums: Sums,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It would be too large, or take too long.
    #[error("{0}")]
    TooMuch(String),
}

type Sorted = BTreeMap<(u64, Vec<String>), Sums>;

impl Asked {
    /// Adds sums to the row that they belong to. False if there are too many rows.
    fn add(&self, rows: &mut Sorted, moment: u64, key: &Key, sums: &Sums) -> bool {
        let start = self.bucket.map_or(self.wish.from, |bucket| bucket.start(moment));
        let by = self.by.iter().map(|dimension| dimension.of(key)).collect();
        rows.entry((start, by)).or_default().add(sums);
        rows.len() <= ROWS
    }
}

impl Meter {
    /// Sums of usage, up to date.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn usage(&self, store: &Store, asked: &Asked) -> Result<Vec<Row>, Unanswered> {
        let mut rows = Sorted::new();
        let too_much = || {
            Unanswered::TooMuch(format!("there are more than {ROWS} rows: ask for less, or for longer spans"))
        };
        if asked.bucket == Some(Bucket::Minute) {
            if !self.by_minute(asked, &mut rows).await? {
                return Err(too_much());
            }
        } else {
            let mut fits = true;
            let each = |key: Key, sums: Sums| {
                fits = asked.add(&mut rows, key.hour * HOUR, &key, &sums);
                if fits { Enough::No } else { Enough::Yes }
            };
            self.by_hour(store, &asked.wish, each).await?;
            if !fits {
                return Err(too_much());
            }
        }
        Ok(rows.into_iter().map(|((start, by), sums)| Row { start, by, sums }).collect())
    }

    /// Gives sums by the hour to `each`, until it has enough: of what was recorded up to now.
    ///
    /// # Errors
    /// When the disk does not take what is not there yet, or cannot be read.
    pub async fn by_hour(
        &self,
        store: &Store,
        wish: &Wish,
        each: impl FnMut(Key, Sums) -> Enough,
    ) -> Result<(), StoreError> {
        self.flush(store).await?;
        store.usage(wish.from / HOUR..wish.to.div_ceil(HOUR), &wish.filter, each).await
    }

    async fn by_minute(&self, asked: &Asked, rows: &mut Sorted) -> Result<bool, Unanswered> {
        let mut after = Some(Position::default());
        for _ in 0..PARTS {
            let Some(from) = after else { return Ok(true) };
            let part = self.find(asked.wish.clone(), from, PART).await?;
            for found in part.found {
                let mut totals = Totals::default();
                totals.add(&found.record);
                for (key, sums) in
                    totals.iter().filter(|(key, _)| asked.wish.filter.has_use(&key.device, &key.model))
                {
                    if !asked.add(rows, found.record.time, key, sums) {
                        return Ok(false);
                    }
                }
            }
            after = part.next;
        }
        match after {
            None => Ok(true),
            Some(_) => Err(Unanswered::TooMuch(
                "there are too many records to be looked at by the minute: ask for a shorter time".to_owned(),
            )),
        }
    }

    /// Records of the log, from a place of it on.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn find(
        &self,
        wish: Wish,
        after: Position,
        most: usize,
    ) -> Result<super::find::Part, StoreError> {
        let Some((folder, end)) = self.log() else { return Ok(super::find::Part::default()) };
        let found = tokio::task::spawn_blocking(move || find(&folder, &wish, after, end, most));
        let found = found.await.map_err(|error| StoreError::Other(error.to_string()))?;
        found.map_err(|bad| StoreError::Unavailable(bad.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_begin_where_the_calendar_says() {
        let at = |text: &str| {
            let moment = humantime::parse_rfc3339(text).unwrap();
            u64::try_from(moment.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()).unwrap()
        };
        let moment = at("2028-02-29T23:59:59.999Z");
        for (bucket, start) in [
            (Bucket::Minute, "2028-02-29T23:59:00Z"),
            (Bucket::Hour, "2028-02-29T23:00:00Z"),
            (Bucket::Day, "2028-02-29T00:00:00Z"),
            (Bucket::Month, "2028-02-01T00:00:00Z"),
        ] {
            assert_eq!(bucket.start(moment), at(start), "{bucket:?}");
        }
    }
}
