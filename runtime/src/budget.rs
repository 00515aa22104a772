//! What tenants have spent in this month, and what they may.
//!
//! A budget has two bounds. Over the soft one the operator's log says so, once in a month, and so does each answer; over the
//! hard one calls are refused until the next month begins (UTC). What is counted is the devices' time, as the devices measure
//! it for inferences that were answered; a unit is a millisecond of it. It is counted since the server's start: a restart
//! begins anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dashmap::DashMap;

/// How much a tenant may spend in a month, in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// Where a tenant is with its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Within,
    /// It has spent all of its soft bound.
    Soft,
}

/// It has spent all that it may.
#[derive(Debug, PartialEq, Eq)]
pub struct Exhausted {
    pub spent: u64,
    pub hard: u64,
    /// Until the next month.
    pub wait: Duration,
}

#[derive(Default)]
struct Account {
    budget: Budget,
    month: Option<Month>,
    /// Of the month.
    spent: Duration,
    warned: bool,
}

impl Account {
    /// The account at a time: of a new month if one has begun.
    fn at(&mut self, now: SystemTime) -> &mut Self {
        let month = Month::of(now);
        if self.month.as_ref() != Some(&month) {
            *self = Self { budget: self.budget, month: Some(month), ..Self::default() };
        }
        self
    }

    fn units(&self) -> u64 {
        u64::try_from(self.spent.as_millis()).unwrap_or(u64::MAX)
    }
}

/// What all tenants have spent, and may.
#[derive(Default)]
pub struct Budgets(DashMap<Arc<str>, Arc<Mutex<Account>>>);

fn lock(account: &Mutex<Account>) -> MutexGuard<'_, Account> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Budgets {
    fn account(&self, tenant: &str) -> Option<Arc<Mutex<Account>>> {
        self.0.get(tenant).map(|account| Arc::clone(&account))
    }

    fn open(&self, tenant: &str) -> Arc<Mutex<Account>> {
        self.account(tenant).unwrap_or_else(|| Arc::clone(&self.0.entry(tenant.into()).or_default()))
    }

    /// What a tenant may spend in a month, from now on; what it has spent stays.
    pub fn set(&self, tenant: &str, budget: Budget) {
        if budget != Budget::default() || self.account(tenant).is_some() {
            lock(&self.open(tenant)).budget = budget;
        }
    }

    /// Counts a time of a device that a tenant has used.
    pub fn charge(&self, tenant: &str, device: Duration, now: SystemTime) {
        let account = self.open(tenant);
        let mut account = lock(&account);
        let account = account.at(now);
        account.spent = account.spent.saturating_add(device);
    }

    /// What a tenant has spent in this month, in units.
    pub fn spent(&self, tenant: &str, now: SystemTime) -> u64 {
        self.account(tenant).map_or(0, |account| lock(&account).at(now).units())
    }

    /// Whether a tenant may go on.
    ///
    /// # Errors
    /// When it has spent all that it may in this month.
    pub fn admit(&self, tenant: &str, now: SystemTime) -> Result<Standing, Exhausted> {
        let Some(account) = self.account(tenant) else { return Ok(Standing::Within) };
        let mut account = lock(&account);
        let Budget { soft, hard } = account.budget;
        if soft.is_none() && hard.is_none() {
            return Ok(Standing::Within);
        }
        let account = account.at(now);
        let spent = account.units();
        if let Some(hard) = hard.filter(|hard| spent >= *hard) {
            return Err(Exhausted { spent, hard, wait: until_next_month(now) });
        }
        let Some(soft) = soft.filter(|soft| spent >= *soft) else { return Ok(Standing::Within) };
        if !std::mem::replace(&mut account.warned, true) {
            tracing::warn!(tenant, spent, soft, "a tenant has spent its soft budget of this month");
        }
        Ok(Standing::Soft)
    }
}

/// A month of the calendar, as `2026-12`.
#[derive(Debug, PartialEq, Eq)]
struct Month(String);

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Month {
    fn of(time: SystemTime) -> Self {
        Self(date(time).chars().take("2026-12".len()).collect())
    }
}

/// As `2026-12-31T…`. Years before 1970, and those that people will not see, are the first.
fn date(time: SystemTime) -> String {
    let shown = |time| humantime::format_rfc3339_seconds(time).to_string();
    match time.duration_since(UNIX_EPOCH).is_ok_and(|since| since < DAY * 365 * 1000) {
        true => shown(time),
        false => shown(UNIX_EPOCH),
    }
}

fn until_next_month(now: SystemTime) -> Duration {
    let month = Month::of(now);
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let today = Duration::from_secs(since.as_secs() / DAY.as_secs() * DAY.as_secs());
    let first = (1..=31).map(|days| today + DAY * days).find(|day| Month::of(UNIX_EPOCH + *day) != month);
    first.unwrap_or(today + DAY).saturating_sub(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SystemTime {
        humantime::parse_rfc3339(text).unwrap()
    }

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn over_the_soft_bound_it_is_told_and_over_the_hard_one_refused_until_the_next_month() {
        let budgets = Budgets::default();
        budgets.set("t", Budget { soft: Some(2), hard: Some(4) });
        let now = at("2026-12-31T23:00:00Z");
        assert_eq!(budgets.admit("t", now), Ok(Standing::Within));
        // Parts of a unit add up.
        for _ in 0..4 {
            budgets.charge("t", MILLI / 2, now);
        }
        assert_eq!(budgets.admit("t", now), Ok(Standing::Soft));
        budgets.charge("t", MILLI * 2, now);
        let hour = Duration::from_secs(3600);
        assert_eq!(budgets.admit("t", now), Err(Exhausted { spent: 4, hard: 4, wait: hour }));
        assert_eq!(budgets.admit("other", now), Ok(Standing::Within));
        budgets.set("t", Budget { soft: None, hard: Some(5) });
        assert_eq!(budgets.admit("t", now), Ok(Standing::Within), "a change holds at once");
        assert_eq!(budgets.spent("t", now), 4, "and what was spent stays");
        budgets.set("t", Budget { soft: None, hard: Some(4) });
        assert!(budgets.admit("t", now + hour - MILLI).is_err());
        assert_eq!(budgets.admit("t", now + hour), Ok(Standing::Within), "a new month has begun");
        assert_eq!(budgets.spent("t", now + hour), 0);
    }

    #[test]
    fn the_operator_is_warned_once_in_a_month() {
        let budgets = Budgets::default();
        budgets.set("t", Budget { soft: Some(1), hard: None });
        let warned = |now| {
            budgets.charge("t", MILLI, now);
            let before = lock(&budgets.account("t").unwrap()).warned;
            assert_eq!(budgets.admit("t", now), Ok(Standing::Soft));
            !before && lock(&budgets.account("t").unwrap()).warned
        };
        let (may, june) = (at("2026-05-31T23:59:59Z"), at("2026-06-01T00:00:00Z"));
        assert_eq!([warned(may), warned(may), warned(june), warned(june)], [true, false, true, false]);
    }

    #[test]
    fn months_end_where_the_calendar_says() {
        for (now, days) in [
            ("2026-01-01T00:00:00Z", 31),
            ("2026-02-01T00:00:00Z", 28),
            ("2028-02-01T00:00:00Z", 29),
            ("2026-04-30T00:00:00Z", 1),
        ] {
            assert_eq!(until_next_month(at(now)), DAY * days, "{now}");
        }
    }
}
