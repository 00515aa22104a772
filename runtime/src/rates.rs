//! How often tenants may call their functions: so many times a second, with so many at once after a pause.
//!
//! The generic cell rate algorithm (ITU-T I.371), from a crate: what is let through of a steady flood is the rate, spread
//! evenly, and who stays below it is never refused. A tenant that is told another rate begins with a whole burst.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

/// A rate, and how many may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub per_second: NonZeroU32,
    pub burst: NonZeroU32,
}

struct Limiter<C: Clock> {
    rate: Rate,
    limiter: RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<C::Instant>>,
}

/// Tenants that have a rate; others may call as often as they like.
pub struct Rates<C: Clock = DefaultClock> {
    clock: C,
    tenants: DashMap<Arc<str>, Arc<Limiter<C>>>,
}

impl Default for Rates {
    fn default() -> Self {
        Self { clock: DefaultClock::default(), tenants: DashMap::new() }
    }
}

impl<C: Clock + Clone> Rates<C> {
    /// How often a tenant may call, from now on.
    pub fn set(&self, tenant: &str, rate: Option<Rate>) {
        let Some(rate) = rate else {
            self.tenants.remove(tenant);
            return;
        };
        if self.tenants.get(tenant).is_some_and(|limiter| limiter.rate == rate) {
            return;
        }
        let quota = Quota::per_second(rate.per_second).allow_burst(rate.burst);
        let limiter = RateLimiter::direct_with_clock(quota, self.clock.clone());
        self.tenants.insert(tenant.into(), Arc::new(Limiter { rate, limiter }));
    }

    /// Takes one call of a tenant's.
    ///
    /// # Errors
    /// How long until it may call again, and its rate.
    pub fn take(&self, tenant: &str) -> Result<(), (Duration, Rate)> {
        let Some(limiter) = self.tenants.get(tenant).map(|limiter| Arc::clone(&limiter)) else {
            return Ok(());
        };
        let taken = limiter.limiter.check();
        taken.map_err(|until| (until.wait_time_from(self.clock.now()), limiter.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor::clock::FakeRelativeClock;

    fn number(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    fn rates() -> Rates<FakeRelativeClock> {
        Rates { clock: FakeRelativeClock::default(), tenants: DashMap::new() }
    }

    #[test]
    fn of_a_flood_of_ten_times_the_rate_the_rate_is_let_through_and_a_neighbour_is_not_touched() {
        let rates = rates();
        rates.set("flood", Some(Rate { per_second: number(50), burst: number(10) }));
        rates.set("quiet", Some(Rate { per_second: number(50), burst: number(10) }));
        let (mut flood, mut refused, mut quiet) = (0, 0, 0);
        // 500 calls a second for 100 seconds, and 25 of the neighbour's.
        for call in 0..50_000_u32 {
            match rates.take("flood") {
                Ok(()) => flood += 1,
                Err((wait, rate)) => {
                    refused += 1;
                    assert!(wait <= Duration::from_millis(20) && rate.per_second.get() == 50, "{wait:?}");
                }
            }
            if call % 20 == 0 {
                quiet += u32::from(rates.take("quiet").is_ok());
            }
            rates.clock.advance(Duration::from_millis(2));
        }
        assert_eq!((flood + refused, quiet), (50_000, 2500));
        let due = 50 * 100 + 10;
        assert!((due * 98 / 100..=due * 102 / 100).contains(&flood), "{flood} of {due}");
    }

    #[test]
    fn a_rate_that_is_changed_or_taken_away_is_so_at_once() {
        let rates = rates();
        let allowed = |rates: &Rates<FakeRelativeClock>| (0..100).filter(|_| rates.take("t").is_ok()).count();
        assert_eq!(allowed(&rates), 100);
        let rate = Rate { per_second: number(1), burst: number(3) };
        rates.set("t", Some(rate));
        assert_eq!(allowed(&rates), 3);
        rates.set("t", Some(rate));
        assert_eq!(allowed(&rates), 0, "to say the same again gives no new burst");
        rates.set("t", Some(Rate { burst: number(5), ..rate }));
        assert_eq!(allowed(&rates), 5);
        rates.set("t", None);
        assert_eq!(allowed(&rates), 100);
    }
}
