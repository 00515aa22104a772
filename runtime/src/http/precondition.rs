//! Changes on a condition: `If-Match` and `If-None-Match`, so that nobody overwrites what they have not seen. Source: RFC
//! 9110, section 13.1.
//!
//! What is kept has a tag, the `ETag` of its answers. A condition is looked at by who makes the change, after all changes
//! before it and before any other.

use std::fmt;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::header::{ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::problem::{Code, Problem};
use crate::store::Kept;

/// The longest list of tags.
const MOST_TAGS: usize = 32;

/// What is kept of a thing, in a word: its version, and of what is kept a hash, for a thing that was removed and made again
/// counts from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag(String);

impl<T: Serialize> From<&Kept<T>> for Tag {
    fn from(kept: &Kept<T>) -> Self {
        // What is kept was written as JSON before.
        let json = serde_json::to_vec(&kept.record).unwrap_or_default();
        let hash = hex::encode(Sha256::digest(json));
        Self(format!("\"{}-{}\"", kept.version, hash.get(..16).unwrap_or_default()))
    }
}

/// An answer about a thing, with the tag of what is kept of it, if anything is.
pub fn tagged<T: Serialize>(kept: Option<&Kept<T>>, answer: impl IntoResponse) -> Response {
    match kept {
        Some(kept) => Tag::from(kept).on(answer),
        None => answer.into_response(),
    }
}

impl Tag {
    /// An answer that carries the tag.
    pub fn on(&self, answer: impl IntoResponse) -> Response {
        let mut response = answer.into_response();
        if let Ok(value) = HeaderValue::from_str(&self.0) {
            response.headers_mut().insert(ETAG, value);
        }
        response
    }
}

/// What a request says must be so for it to change anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Precondition {
    is: Option<Is>,
    /// Whether it must not be there.
    is_new: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Is {
    There,
    /// There, with one of these tags.
    OneOf(Vec<String>),
}

impl Precondition {
    /// That the thing is as the request says, where `kept` is what is kept of it.
    ///
    /// # Errors
    /// When it is not.
    pub fn check<T: Serialize>(&self, kept: Option<&Kept<T>>) -> Result<(), Problem> {
        let failed = |detail: String| Err(Problem::new(Code::PreconditionFailed, detail));
        match (kept, &self.is) {
            (Some(_), _) if self.is_new => failed("it is there already; nothing has changed".to_owned()),
            (None, Some(_)) => failed("it is not there; nothing has changed".to_owned()),
            (Some(kept), Some(Is::OneOf(tags))) => match Tag::from(kept) {
                Tag(tag) if tags.contains(&tag) => Ok(()),
                Tag(tag) => failed(format!("it has changed: its tag is {tag} now; nothing has changed here")),
            },
            (_, None) | (Some(_), Some(Is::There)) => Ok(()),
        }
    }
}

fn values(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Problem> {
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned);
    let values: Result<Vec<String>, _> = headers.get_all(name).iter().map(text).collect();
    let values = values.map_err(|_| misunderstood(name, "it is not text"))?;
    Ok((!values.is_empty()).then(|| values.join(",")))
}

fn misunderstood(name: &HeaderName, why: impl fmt::Display) -> Problem {
    Problem::new(Code::InvalidRequest, format!("the header {name} is not understood: {why}"))
}

fn read(headers: &HeaderMap) -> Result<Precondition, Problem> {
    let is = match values(headers, &IF_MATCH)? {
        None => None,
        Some(any) if any.trim() == "*" => Some(Is::There),
        Some(list) => {
            let tags: Vec<String> = list.split(',').map(|tag| tag.trim().to_owned()).collect();
            let quoted = |tag: &String| {
                // A weak tag never says that two things are the same, but it is one.
                let tag = tag.strip_prefix("W/").unwrap_or(tag);
                tag.len() > 1 && tag.starts_with('"') && tag.ends_with('"')
            };
            if tags.len() > MOST_TAGS || !tags.iter().all(quoted) {
                let why = format!("write `*`, or up to {MOST_TAGS} tags in quotes");
                return Err(misunderstood(&IF_MATCH, why));
            }
            Some(Is::OneOf(tags))
        }
    };
    let is_new = match values(headers, &IF_NONE_MATCH)? {
        None => false,
        Some(any) if any.trim() == "*" => true,
        Some(_) => return Err(misunderstood(&IF_NONE_MATCH, "only `*` is, for what must not be there yet")),
    };
    Ok(Precondition { is, is_new })
}

impl<S: Send + Sync> FromRequestParts<S> for Precondition {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        read(&parts.headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(version: i64, record: &str) -> Kept<String> {
        Kept { record: record.to_owned(), version }
    }

    fn with(name: &HeaderName, value: &str) -> Result<Precondition, Problem> {
        read(&HeaderMap::from_iter([(name.clone(), HeaderValue::from_str(value).unwrap())]))
    }

    #[test]
    fn a_condition_holds_for_what_it_names_and_nothing_else() {
        let (old, new) = (kept(1, "a"), kept(2, "a"));
        let again = kept(1, "b");
        let Tag(tag) = Tag::from(&old);
        let holds = |condition: &Precondition, kept: Option<&Kept<String>>| condition.check(kept).is_ok();
        let none = Precondition::default();
        assert!(holds(&none, None) && holds(&none, Some(&old)));
        for list in [tag.clone(), format!("\"x\", {tag}")] {
            let is = with(&IF_MATCH, &list).unwrap();
            assert!(holds(&is, Some(&old)));
            assert!(!holds(&is, Some(&new)) && !holds(&is, Some(&again)) && !holds(&is, None));
        }
        let weak = with(&IF_MATCH, &format!("W/{tag}")).unwrap();
        assert!(!holds(&weak, Some(&old)));
        let there = with(&IF_MATCH, "*").unwrap();
        assert!(holds(&there, Some(&new)) && !holds(&there, None));
        let is_new = with(&IF_NONE_MATCH, "*").unwrap();
        assert!(holds(&is_new, None) && !holds(&is_new, Some(&old)));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for wrong in ["", "x", "\"a\",", "\""] {
            assert!(with(&IF_MATCH, wrong).is_err(), "{wrong}");
        }
        assert!(with(&IF_MATCH, &vec!["\"a\""; 33].join(",")).is_err());
        assert!(with(&IF_NONE_MATCH, "\"a\"").is_err());
    }
}
