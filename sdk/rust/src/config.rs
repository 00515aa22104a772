use crate::{Error, host};

/// The value of `name` in the function's configuration (its `env`), which reaches the sandbox as an
/// environment variable.
///
/// Not there, or not UTF-8: status 500, code `missing_config`. Use `std::env::var` for a value that may be
/// absent.
pub fn config(name: &str) -> Result<String, Error> {
    host::config(name).ok_or_else(|| {
        Error::new(500, "missing_config", format!("the function's `env` has no text value `{name}`"))
    })
}
