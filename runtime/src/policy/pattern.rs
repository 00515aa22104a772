//! What a list of a policy is made of: patterns of names, and hosts.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::sandbox::egress::HostPattern;

/// A name in which each `*` stands for any characters, none among them. Nothing else is special.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether all of `name` is what the pattern says.
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == name };
        let Some(mut name) = name.strip_prefix(first) else { return false };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        for part in middle.split('*') {
            // The first place is the best one: it leaves the most for the parts that follow.
            match name.split_once(part) {
                Some((_, after)) => name = after,
                None => return false,
            }
        }
        name.ends_with(last)
    }

    /// Whether an interface is what the pattern says, with its version or without it.
    pub fn allows_interface(&self, import: &str) -> bool {
        self.matches(import) || import.split_once('@').is_some_and(|(name, _)| self.matches(name))
    }
}

/// Hosts that a function's `egress` may name: all, or those that a host's pattern covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    Any,
    Of(HostPattern),
}

impl Hosts {
    /// Whether every request that `asked` lets through is to one of these.
    pub fn cover(&self, asked: &HostPattern) -> bool {
        match self {
            Self::Any => true,
            Self::Of(allowed) => allowed.covers(asked),
        }
    }
}

impl Serialize for Hosts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Any => serializer.serialize_str("*"),
            Self::Of(pattern) => pattern.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Hosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "*" => Ok(Self::Any),
            other => other.parse().map(Self::Of).map_err(de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_name() {
        for (pattern, name, matches) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*b*c", "abc", true),
            ("a**c", "abc", true),
            ("*ab*ab", "ab", false),
            ("*ab*ab", "xabab", true),
            ("a?", "ab", false),
            ("[ab]", "a", false),
        ] {
            assert_eq!(Pattern(pattern.to_owned()).matches(name), matches, "{pattern} {name}");
        }
    }

    #[test]
    fn an_interface_is_named_with_or_without_its_version() {
        for (pattern, matches) in [
            ("wasi:http/types@0.2.3", true),
            ("wasi:http/types", true),
            ("wasi:http/*", true),
            ("wasi:http/*@0.2.*", true),
            ("wasi:*", true),
            ("wasi:http/types@0.2.4", false),
            ("wasi:http/type", false),
            ("wasi:http/*@0.3.*", false),
            ("wasi:nn/*", false),
        ] {
            let pattern = Pattern(pattern.to_owned());
            assert_eq!(pattern.allows_interface("wasi:http/types@0.2.3"), matches, "{pattern:?}");
        }
    }
}
