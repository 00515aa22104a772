use std::collections::HashMap;
use std::fmt;

/// A ledger of bytes per account.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: HashMap<String, u64>,
    limit: Option<u64>,
}

#[derive(Debug, PartialEq)]
pub enum LedgerError {
    OverLimit { requested: u64, limit: u64 },
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OverLimit { requested, limit } => write!(f, "{requested} bytes asked, limit {limit}"),
        }
    }
}

impl Ledger {
    pub fn charge(&mut self, account: &str, bytes: u64) -> Result<u64, LedgerError> {
        let entry = self.accounts.entry(account.to_owned()).or_insert(0);
        let requested = entry.saturating_add(bytes);
        if let Some(limit) = self.limit.filter(|limit| requested > *limit) {
            return Err(LedgerError::OverLimit { requested, limit });
        }
        *entry = requested;
        Ok(requested)
    }
}

fn main() {
    let mut ledger = Ledger { limit: Some(100), ..Ledger::default() };
    println!("{:?}", ledger.charge("river", 60));
    println!("{:?}", ledger.charge("river", 60));
}
