//! Names that tenants choose. They are part of URLs and file names, so what they may be is narrow.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The longest name.
const LONGEST: usize = 63;

/// A checked name of a tenant, function or model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// A function's or tenant's name: lower-case letters, digits and hyphens, as in a host name's label.
    ///
    /// # Errors
    /// A sentence that shows the name and the rule.
    pub fn function(name: &str) -> Result<Self, String> {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if fits(name, inner) && !name.ends_with('-') {
            return Ok(Self(name.into()));
        }
        Err(format!(
            "`{}` is not a function's name: use up to {LONGEST} lower-case letters, digits and hyphens, beginning \
             with a letter or digit",
            shown(name)
        ))
    }

    /// A tenant's name: as a function's, but for the name of what belongs to no tenant.
    ///
    /// # Errors
    /// A sentence that shows the name and the rule.
    pub fn tenant(name: &str) -> Result<Self, String> {
        if name == weir_gpu::SYSTEM {
            return Err(format!("`{name}` is what belongs to no tenant; a tenant needs another name"));
        }
        Self::function(name).map_err(|reason| reason.replace("a function's name", "a tenant's name"))
    }

    /// A rate card's name: as a function's.
    ///
    /// # Errors
    /// A sentence that shows the name and the rule.
    pub fn card(name: &str) -> Result<Self, String> {
        Self::function(name).map_err(|reason| reason.replace("a function's name", "a rate card's name"))
    }

    /// A model's name: letters, digits, `.`, `_` and `-`.
    ///
    /// # Errors
    /// A sentence that shows the name and the rule.
    pub fn model(name: &str) -> Result<Self, String> {
        if fits(name, |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')) {
            return Ok(Self(name.into()));
        }
        Err(format!(
            "`{}` is not a model's name: use up to {LONGEST} letters, digits, `.`, `_` and `-`, beginning with a \
             letter or digit",
            shown(name)
        ))
    }
}

fn fits(name: &str, inner: impl Fn(char) -> bool) -> bool {
    name.len() <= LONGEST && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(inner)
}

fn shown(name: &str) -> String {
    name.chars().take(LONGEST).collect::<String>().escape_default().to_string()
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_narrow() {
        for good in ["a", "hello", "file-type", "3d", &"a".repeat(63)] {
            assert!(Name::function(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "../a", "a/b", "ä", &"a".repeat(64)] {
            assert!(Name::function(bad).is_err(), "{bad}");
        }
        assert!(Name::tenant("acme").is_ok());
        assert!(Name::tenant("system").unwrap_err().contains("belongs to no tenant"));
        assert!(Name::tenant("A").unwrap_err().contains("not a tenant's name"));
        assert!(Name::model("PP-OCRv4_det.onnx").is_ok());
        for bad in ["", ".", "..", ".a", "a/b", "a b", "a\0"] {
            assert!(Name::model(bad).is_err(), "{bad}");
        }
    }
}
