//! How often an address may be wrong. Keys cannot be guessed; this keeps those who try from filling the log, and tells the
//! operator of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong keys of one address at once.
const AT_ONCE: u32 = 20;
/// How long until one more is allowed.
const EVERY: Duration = Duration::from_secs(3);
/// Addresses that are remembered.
const MOST: usize = 10_000;

/// An address, or a network of those that one can have as many of as one likes.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

/// Addresses that were wrong of late, each with when it will be as one that never was.
#[derive(Default)]
pub struct Failures(Mutex<HashMap<IpAddr, Instant>>);

impl Failures {
    /// Notes that an address was wrong; how long it has to wait if it was so too often.
    pub fn note(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, clean| *clean > now);
        }
        let network = network(address);
        if known.len() >= MOST && !known.contains_key(&network) {
            // So many at once are one attack, and all new ones of it wait.
            return Some(EVERY);
        }
        let clean = known.entry(network).or_insert(now);
        let owed = (*clean).max(now) + EVERY;
        let most = now + EVERY * AT_ONCE;
        if owed > most {
            return Some(owed - most);
        }
        *clean = owed;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_wrong_so_often_and_then_now_and_again() {
        let failures = Failures::default();
        let (one, other): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let now = Instant::now();
        for _ in 0..AT_ONCE {
            assert_eq!(failures.note(one, now), None);
        }
        assert_eq!(failures.note(one, now), Some(EVERY));
        assert_eq!(failures.note(other, now), None);
        assert_eq!(failures.note(one, now + EVERY), None);
        assert_eq!(failures.note(one, now + EVERY), Some(EVERY));
        let later = now + EVERY * (AT_ONCE + 1);
        assert!((0..AT_ONCE).all(|_| failures.note(one, later).is_none()));
    }

    #[test]
    fn the_addresses_of_one_network_are_one_and_not_too_many_are_kept() {
        let failures = Failures::default();
        let now = Instant::now();
        for host in 0..AT_ONCE {
            assert_eq!(failures.note(format!("2001:db8::{host}").parse().unwrap(), now), None);
        }
        assert_eq!(failures.note("2001:db8::ffff".parse().unwrap(), now), Some(EVERY));
        for host in 0..2 * u32::try_from(MOST).unwrap() {
            failures.note(IpAddr::V4(host.into()), now);
        }
        assert!(failures.0.lock().unwrap().len() <= MOST);
        assert_eq!(failures.note("198.51.100.1".parse().unwrap(), now + EVERY * 2), None);
    }
}
