//! How often something may be done: so many times a second, with so many at once after a pause. A function may have a rate
//! of its calls, and its tenant one for all of its functions together.
//!
//! The generic cell rate algorithm (ITU-T I.371): what is let through of a steady flood is the rate, spread evenly, and who
//! stays below it is never refused. A call takes of both rates or of neither: what one refuses costs nothing of the other.
//! That is why it is written out here; the limiters of crates take at once, and cannot give back. Who is told another rate
//! begins with a whole burst.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dashmap::DashMap;

/// A rate, and how many may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub per_second: NonZeroU32,
    pub burst: NonZeroU32,
}

impl Rate {
    /// So many times a second, and at once as many, unless it is said.
    pub fn new(per_second: Option<NonZeroU32>, burst: Option<NonZeroU32>) -> Option<Self> {
        let per_second = per_second?;
        Some(Self { per_second, burst: burst.unwrap_or(per_second) })
    }

    /// Time between two calls of a steady stream, in picoseconds: nanoseconds would make a high rate another one.
    fn interval(self) -> u128 {
        1_000_000_000_000 / u128::from(self.per_second.get())
    }
}

/// Whose rate it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Function,
    Tenant,
}

impl Of {
    /// The policy's name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Tenant => "tenant",
        }
    }
}

/// A rate, and what is left of it after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    pub of: Of,
    pub rate: Rate,
    /// Calls that may come at once now.
    pub calls: u32,
    /// Until a call may come, or, where some may, until a whole burst may.
    pub wait: Duration,
}

/// One rate's state: when, since a moment, all that was let through will be paid for by time, in picoseconds.
#[derive(Debug)]
struct Limiter {
    rate: Rate,
    paid: u128,
}

impl Limiter {
    /// What the state would be after a call now.
    ///
    /// # Errors
    /// How long a caller has to wait.
    fn look(&self, now: u128) -> Result<u128, Duration> {
        let Self { rate, paid } = *self;
        let next = paid.max(now) + rate.interval();
        let whole = rate.interval() * u128::from(rate.burst.get());
        match (next - now).checked_sub(whole) {
            Some(over) if over > 0 => Err(span(over)),
            _ => Ok(next),
        }
    }

    fn left(&self, of: Of, now: u128) -> Left {
        let (rate, owed) = (self.rate, self.paid.saturating_sub(now));
        let free = (rate.interval() * u128::from(rate.burst.get())).saturating_sub(owed);
        let calls = u32::try_from(free / rate.interval().max(1)).unwrap_or(u32::MAX);
        Left { of, rate, calls, wait: span(owed) }
    }
}

fn picoseconds(span: Duration) -> u128 {
    span.as_nanos() * 1000
}

fn span(picoseconds: u128) -> Duration {
    Duration::from_nanos(u64::try_from(picoseconds.div_ceil(1000)).unwrap_or(u64::MAX))
}

/// What may have a rate.
#[derive(Debug, Default)]
pub struct Limited(Mutex<Option<Limiter>>);

impl Limited {
    /// How often, from now on. To say the same again changes nothing.
    pub fn set(&self, rate: Option<Rate>) {
        let mut limiter = self.lock();
        if limiter.as_ref().map(|limiter| limiter.rate) != rate {
            *limiter = rate.map(|rate| Limiter { rate, paid: 0 });
        }
    }

    /// Takes one, at a time since a moment that is always the same; whether it may be.
    pub fn take(&self, at: Duration) -> bool {
        let mut limiter = self.lock();
        let Some(limiter) = limiter.as_mut() else { return true };
        let looked = limiter.look(picoseconds(at));
        if let Ok(paid) = looked {
            limiter.paid = paid;
        }
        looked.is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Limiter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tenants' rates.
pub struct Rates {
    since: Instant,
    tenants: DashMap<Arc<str>, Arc<Limited>>,
}

impl Default for Rates {
    fn default() -> Self {
        Self { since: Instant::now(), tenants: DashMap::new() }
    }
}

impl Rates {
    /// How often a tenant may call, from now on.
    pub fn set(&self, tenant: &str, rate: Option<Rate>) {
        match rate {
            Some(rate) => self.tenants.entry(tenant.into()).or_default().set(Some(rate)),
            None => drop(self.tenants.remove(tenant)),
        }
    }

    /// Takes one call of a function, and of its tenant: of both, or of none. What is left of each that has a rate.
    ///
    /// # Errors
    /// The rate that it would be over, the function's before the tenant's.
    pub fn take(&self, function: &Limited, tenant: &str, now: Instant) -> Result<Vec<Left>, Left> {
        let tenant = self.tenants.get(tenant).map(|limited| Arc::clone(&limited));
        let now = picoseconds(now.saturating_duration_since(self.since));
        // Always in this order, so that nobody waits for who waits for it.
        let mut function = function.lock();
        let mut tenant = tenant.as_ref().map(|limited| limited.lock());
        let tenant = tenant.as_mut().and_then(|limiter| limiter.as_mut());
        let limiters = [(Of::Function, function.as_mut()), (Of::Tenant, tenant)];
        let limiters = limiters.into_iter().filter_map(|(of, limiter)| Some((of, limiter?)));
        let looked: Vec<_> = limiters
            .map(|(of, limiter)| match limiter.look(now) {
                Ok(paid) => Ok((of, limiter, paid)),
                Err(wait) => Err(Left { of, rate: limiter.rate, calls: 0, wait }),
            })
            .collect::<Result<_, _>>()?;
        let take = |(of, limiter, paid): (Of, &mut Limiter, u128)| {
            limiter.paid = paid;
            limiter.left(of, now)
        };
        Ok(looked.into_iter().map(take).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: u32, burst: u32) -> Option<Rate> {
        Rate::new(NonZeroU32::new(per_second), NonZeroU32::new(burst))
    }

    #[test]
    fn of_a_flood_of_ten_times_the_rate_the_rate_is_let_through_and_a_neighbour_is_not_touched() {
        let (rates, any) = (Rates::default(), Limited::default());
        rates.set("flood", rate(50, 10));
        rates.set("quiet", rate(50, 10));
        let (mut flood, mut refused, mut quiet) = (0, 0, 0);
        let mut now = rates.since;
        // 500 calls a second for 100 seconds, and 25 of the neighbour's.
        for call in 0..50_000_u32 {
            match rates.take(&any, "flood", now) {
                Ok(_) => flood += 1,
                Err(Left { of, wait, calls, rate }) => {
                    refused += 1;
                    assert_eq!((of, calls, rate.per_second.get()), (Of::Tenant, 0, 50));
                    assert!(wait <= Duration::from_millis(20) && wait > Duration::ZERO, "{wait:?}");
                    assert!(rates.take(&any, "flood", now + wait - Duration::from_nanos(1)).is_err());
                }
            }
            if call % 20 == 0 {
                quiet += u32::from(rates.take(&any, "quiet", now).is_ok());
            }
            now += Duration::from_millis(2);
        }
        assert_eq!((flood + refused, quiet), (50_000, 2500));
        let due = 50 * 100 + 10;
        assert!((due * 98 / 100..=due * 102 / 100).contains(&flood), "{flood} of {due}");
    }

    #[test]
    fn a_rate_that_is_changed_or_taken_away_is_so_at_once() {
        let (rates, any) = (Rates::default(), Limited::default());
        let now = rates.since;
        let allowed = || (0..100).filter(|_| rates.take(&any, "t", now).is_ok()).count();
        assert_eq!(allowed(), 100);
        rates.set("t", rate(1, 3));
        assert_eq!(allowed(), 3);
        rates.set("t", rate(1, 3));
        assert_eq!(allowed(), 0, "to say the same again gives no new burst");
        rates.set("t", rate(1, 5));
        assert_eq!(allowed(), 5);
        rates.set("t", None);
        assert_eq!(allowed(), 100);
    }

    #[test]
    fn what_one_rate_refuses_costs_nothing_of_the_other() {
        let (rates, narrow, wide) = (Rates::default(), Limited::default(), Limited::default());
        let mut now = rates.since;
        narrow.set(rate(1, 2));
        wide.set(rate(1, 9));
        rates.set("t", rate(1, 5));
        let left = rates.take(&narrow, "t", now).unwrap();
        assert_eq!(
            left.iter().map(|left| (left.of, left.calls)).collect::<Vec<_>>(),
            [(Of::Function, 1), (Of::Tenant, 4)]
        );
        rates.take(&narrow, "t", now).unwrap();
        for _ in 0..10 {
            assert_eq!(rates.take(&narrow, "t", now).unwrap_err().of, Of::Function);
        }
        // Of the tenant's five, two are used.
        let allowed = (0..10).filter(|_| rates.take(&wide, "t", now).is_ok()).count();
        assert_eq!(allowed, 3);
        assert_eq!(rates.take(&wide, "t", now).unwrap_err().of, Of::Tenant);
        rates.set("t", None);
        // And of the other function's nine, those three.
        assert_eq!((0..10).filter(|_| rates.take(&wide, "t", now).is_ok()).count(), 6);
        now += Duration::from_secs(1);
        assert!(rates.take(&narrow, "t", now).is_ok() && rates.take(&narrow, "t", now).is_err());
    }
}
