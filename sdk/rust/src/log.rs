//! Log lines: one line per call to stderr, level first, which the host keeps as the function's log.
//!
//! ```
//! weir_sdk::log::info!("read {} bytes", 17);
//! ```

use std::fmt;

use crate::host;
pub use crate::{__debug as debug, __error as error, __info as info, __warn as warn};

/// Writes `LEVEL text` as one line: line breaks in the text become `\n`, so that no caller can forge a line.
#[doc(hidden)]
pub fn line(level: &str, text: fmt::Arguments<'_>) {
    host::log(&format_line(level, text));
}

fn format_line(level: &str, text: fmt::Arguments<'_>) -> String {
    let mut line = format!("{level} {text}");
    if line.contains(['\n', '\r']) {
        line = line.replace('\r', "\\r").replace('\n', "\\n");
    }
    line.push('\n');
    line
}

/// Logs at level `DEBUG`.
#[doc(hidden)]
#[macro_export]
macro_rules! __debug {
    ($($text:tt)+) => { $crate::log::line("DEBUG", ::core::format_args!($($text)+)) };
}

/// Logs at level `INFO`.
#[doc(hidden)]
#[macro_export]
macro_rules! __info {
    ($($text:tt)+) => { $crate::log::line("INFO", ::core::format_args!($($text)+)) };
}

/// Logs at level `WARN`.
#[doc(hidden)]
#[macro_export]
macro_rules! __warn {
    ($($text:tt)+) => { $crate::log::line("WARN", ::core::format_args!($($text)+)) };
}

/// Logs at level `ERROR`.
#[doc(hidden)]
#[macro_export]
macro_rules! __error {
    ($($text:tt)+) => { $crate::log::line("ERROR", ::core::format_args!($($text)+)) };
}

#[cfg(test)]
mod tests {
    use super::format_line;

    #[test]
    fn a_call_is_one_line() {
        assert_eq!(format_line("INFO", format_args!("x = {}", 1)), "INFO x = 1\n");
        assert_eq!(format_line("WARN", format_args!("a\r\nERROR b")), "WARN a\\r\\nERROR b\n");
    }
}
