//! The device's memory, as it is planned: what the models in memory take and what the jobs that run need.
//!
//! Nothing here is measured. What a model plans is known before it is loaded, and what a run plans before it runs; what
//! would pass the most is refused then, so that models and jobs within their own limits cannot use up the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;

/// A budget in bytes.
#[derive(Debug)]
pub(crate) struct Memory {
    most: u64,
    used: AtomicU64,
}

/// Bytes of a budget, given back on drop.
#[derive(Debug)]
pub(crate) struct Reserved {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Memory {
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { most, used: AtomicU64::new(0) })
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`Error::DeviceMemory`] when there are not so many bytes left.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reserved, Error> {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.most);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Reserved { memory: Arc::clone(self), bytes }),
            Err(used) => Err(Error::DeviceMemory { needed: bytes, used, most: self.most }),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_comes_back_and_no_more_is_given_than_there_is() {
        let memory = Memory::new(10);
        let six = memory.reserve(6).unwrap();
        assert_eq!(memory.reserve(5).unwrap_err(), Error::DeviceMemory { needed: 5, used: 6, most: 10 });
        let four = memory.reserve(4).unwrap();
        assert!(memory.reserve(u64::MAX).is_err(), "nor by overflow");
        drop(six);
        assert!(memory.reserve(6).is_ok());
        drop(four);
        assert_eq!(memory.used(), 0);
    }
}
