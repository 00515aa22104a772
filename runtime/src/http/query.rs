//! Queries, and the pages that lists are given in.

use std::borrow::Cow;
use std::error::Error;

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::problem::{Code, Problem};

/// A request's query. What it has that its route does not read is refused.
pub struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::from_request_parts(parts, state).await;
        let invalid = |reason: String| Problem::new(Code::InvalidRequest, reason);
        query.map(|Query(query)| Self(query)).map_err(|error| {
            // Without the framework's words about what it did: its source is what was wrong.
            invalid(error.source().map_or_else(|| error.body_text(), ToString::to_string))
        })
    }
}

/// The most that one page of a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u32")]
pub struct PageLimit(u32);

impl JsonSchema for PageLimit {
    fn schema_name() -> Cow<'static, str> {
        "PageLimit".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let Self(default) = Self::default();
        json_schema!({ "type": "integer", "minimum": 1, "maximum": Self::MOST, "default": default })
    }
}

impl PageLimit {
    const MOST: u32 = 1000;

    /// As a number.
    pub fn most(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// Of things in the order of their keys, those that come after the key `after`, up to this many; and the last one's
    /// key, if there are more.
    pub fn page<T>(
        self,
        mut things: Vec<T>,
        after: Option<String>,
        key: impl Fn(&T) -> String,
    ) -> (Vec<T>, Option<String>) {
        if let Some(after) = after {
            let begin = things.partition_point(|thing| key(thing) <= after);
            things.drain(..begin);
        }
        let limit = self.most();
        let more = things.len() > limit;
        things.truncate(limit);
        let next = things.last().filter(|_| more).map(key);
        (things, next)
    }
}

impl Default for PageLimit {
    fn default() -> Self {
        Self(100)
    }
}

impl TryFrom<u32> for PageLimit {
    type Error = String;

    fn try_from(limit: u32) -> Result<Self, String> {
        match (1..=Self::MOST).contains(&limit) {
            true => Ok(Self(limit)),
            false => Err(format!("limit is {limit}; it must be 1 to {}", Self::MOST)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_together_are_the_whole_list() {
        let things: Vec<String> = (100..205).map(|number| number.to_string()).collect();
        for limit in [1, 7, 100, 104, 105, 1000] {
            let limit = PageLimit::try_from(limit).unwrap();
            let (mut all, mut after) = (Vec::new(), None);
            loop {
                let (page, next) = limit.page(things.clone(), after, String::clone);
                assert!(!page.is_empty() && page.len() <= limit.0 as usize);
                all.extend(page);
                after = next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(all, things, "{limit:?}");
        }
        let (page, next) = PageLimit::default().page(things.clone(), Some("1039".to_owned()), String::clone);
        assert_eq!((page[0].as_str(), page.len(), next.as_deref()), ("104", 100, Some("203")));
        let beyond = PageLimit::default().page(things, Some("9".to_owned()), String::clone);
        assert_eq!(beyond, (vec![], None));
        assert!(PageLimit::try_from(0).is_err() && PageLimit::try_from(1001).is_err());
    }
}
