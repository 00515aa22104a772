//! What calls use, kept for the bill.

pub mod quantities;
pub mod record;
pub mod rollup;
pub mod totals;

/// What is the ledger's, until it is here.
pub mod ledger {
    use serde::{Deserialize, Serialize};

    /// A place of the log: between two records.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
    pub struct Position {
        pub segment: u64,
        /// Bytes from the segment's start.
        pub offset: u64,
    }
}
