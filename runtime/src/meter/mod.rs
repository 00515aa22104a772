//! What calls use, kept for the bill.

pub mod record;
