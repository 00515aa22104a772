//! What tenants may spend in a month, and how far they are.
//!
//! A budget has soft and hard bounds, of money and of the devices' time. Over a soft one the operator's log says so, once in a
//! month, and so does each answer; over a hard one calls are refused until the next month begins (UTC). What is spent follows
//! from the usage records at the tenant's prices, before credits, and is not rounded. So it survives a restart, and a change of
//! prices holds for all of the month.
//!
//! A call asks for one number only ([`Budgets::admit`]). Twice a second it is looked at anew for whoever has used something
//! (`node/budgets.rs`): what is in the store, and what is in memory and not yet there. What calls use that have not ended is
//! not known yet: a tenant may end up over its budget by that, and by what half a second brings.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::Notify;

use super::invoice::Row;
use super::{Amount, Hour, Month, Tariff};
use crate::meter::ledger::Position;

/// How much a tenant may spend in a month: of money, and of the devices' time in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budget {
    pub soft: Bounds,
    pub hard: Bounds,
}

/// What is spent is over bounds if it is over one of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bounds {
    pub device_ms: Option<u64>,
    pub money: Option<Amount>,
}

/// What was spent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spent {
    pub device_ns: u128,
    /// Exact, in the currency of the tenant's rate card.
    pub money: Amount,
}

/// Where a tenant is with its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Within,
    /// It has spent all of a soft bound.
    Soft,
}

/// It has spent all that it may.
#[derive(Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The setting that says how much.
    pub setting: &'static str,
    pub spent: String,
    pub most: String,
    /// Until the next month.
    pub wait: Duration,
}

/// What a soft bound was passed with.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    pub setting: &'static str,
    pub spent: String,
    pub most: String,
}

/// The settings that are the bounds.
pub const SOFT: [&str; 2] = ["budget_soft", "spend_soft"];
pub const HARD: [&str; 2] = ["budget_hard", "spend_hard"];

impl Budget {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Bounds {
    /// The bound that was passed, if one was.
    fn passed(&self, spent: &Spent, [device, money]: [&'static str; 2]) -> Option<Passed> {
        let millis = spent.millis();
        if let Some(most) = self.device_ms.filter(|most| millis >= *most) {
            return Some(Passed { setting: device, spent: millis.to_string(), most: most.to_string() });
        }
        let most = self.money.as_ref().filter(|most| spent.money >= **most)?;
        Some(Passed { setting: money, spent: spent.money.to_string(), most: most.to_string() })
    }
}

impl Spent {
    pub fn millis(&self) -> u64 {
        u64::try_from(self.device_ns / 1_000_000).unwrap_or(u64::MAX)
    }

    fn add(&mut self, other: &Self) {
        self.device_ns = self.device_ns.saturating_add(other.device_ns);
        self.money += &other.money;
    }

    /// What rows of usage cost.
    fn of<'a>(rows: impl IntoIterator<Item = &'a Row>, tariff: &Tariff) -> Self {
        let mut spent = Self::default();
        for Row { hour, device, sums } in rows {
            spent.device_ns = spent.device_ns.saturating_add(sums.device_ns.into());
            for charge in tariff.charges(*hour, device, sums) {
                spent.money += &charge.amount;
            }
        }
        spent
    }
}

/// What is known of a tenant's month.
#[derive(Debug)]
struct Known {
    month: Month,
    /// Of the prices: see [`super::Money::changes`].
    prices: u64,
    /// Up to where the store had the log when this was read.
    position: Position,
    /// Of the hours before `until`, which have no more usage to come.
    ended: Spent,
    until: Hour,
    /// Of the hours since, in the store.
    stored: Spent,
    /// And not in the store.
    live: Spent,
}

impl Known {
    fn spent(&self) -> Spent {
        let mut spent = self.ended.clone();
        spent.add(&self.stored);
        spent.add(&self.live);
        spent
    }
}

#[derive(Default)]
struct Account {
    /// 0 within its budget, 1 over a soft bound, 2 over a hard one.
    standing: AtomicU8,
    /// The end of the month that this is of, in milliseconds since 1970.
    until: AtomicU64,
    of: Mutex<Of>,
}

#[derive(Default)]
struct Of {
    budget: Budget,
    known: Option<Known>,
    /// The month in which the operator was told.
    told: Option<Month>,
}

/// A budget's usage, as it is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    pub from: Hour,
    pub to: Hour,
}

/// For how many hours usage may still come to the store after they have ended.
const LATE: u64 = 24;

/// What all tenants may spend, and have spent.
#[derive(Default)]
pub struct Budgets {
    accounts: DashMap<Arc<str>, Arc<Account>>,
    again: Notify,
}

fn lock(account: &Account) -> MutexGuard<'_, Of> {
    account.of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Account {
    /// Says where the tenant is: for calls, and for the first time in a month that a soft bound is passed.
    fn settle(&self, of: &mut Of) -> Option<Passed> {
        let known = of.known.as_ref();
        let spent = known.map(Known::spent).unwrap_or_default();
        let soft = of.budget.soft.passed(&spent, SOFT);
        let standing = match of.budget.hard.passed(&spent, HARD) {
            Some(_) => 2,
            None => u8::from(soft.is_some()),
        };
        self.until.store(known.map_or(0, |known| known.month.end().millis()), Ordering::Relaxed);
        self.standing.store(standing, Ordering::Release);
        let month = known.map(|known| known.month);
        let is_news = soft.is_some() && of.told != month;
        if is_news {
            of.told = month;
        }
        soft.filter(|_| is_news)
    }
}

impl Budgets {
    /// What a tenant may spend in a month, from now on; what it has spent stays.
    pub fn set(&self, tenant: &str, budget: Budget) {
        if budget.is_none() {
            self.accounts.remove(tenant);
            return;
        }
        let account = match self.accounts.get(tenant) {
            Some(account) => Arc::clone(&account),
            None => Arc::clone(&self.accounts.entry(tenant.into()).or_default()),
        };
        let mut of = lock(&account);
        of.budget = budget;
        self.tell(tenant, account.settle(&mut of));
        drop(of);
        self.look_again();
    }

    /// Has what was spent be looked at now.
    pub fn look_again(&self) {
        self.again.notify_one();
    }

    /// Waits until it is to be looked at before its time.
    pub async fn asked_again(&self) {
        self.again.notified().await;
    }

    /// The tenants that have a budget.
    pub fn tenants(&self) -> Vec<Arc<str>> {
        self.accounts.iter().map(|account| Arc::clone(account.key())).collect()
    }

    /// The usage of a tenant that must be read from the store to know what it has spent, if what is known is not of this month,
    /// these prices and this position of the log.
    pub fn wanted(&self, tenant: &str, now: u64, prices: u64, position: Position) -> Option<Wanted> {
        let account = Arc::clone(&*self.accounts.get(tenant)?);
        let of = lock(&account);
        let month = Month::of(Hour::of(now));
        match &of.known {
            Some(known) if known.month == month && known.prices == prices => {
                let from = known.until;
                (known.position != position).then(|| Wanted { from, to: month.end() })
            }
            _ => Some(Wanted { from: month.start(), to: month.end() }),
        }
    }

    /// Takes what is in the store of what was wanted: `stored` where something was, and `live`, what is in memory.
    pub fn take(
        &self,
        tenant: &str,
        (now, prices, position): (u64, u64, Position),
        stored: Option<(&Wanted, &[Row])>,
        live: &[Row],
        tariff: &Tariff,
    ) {
        let Some(account) = self.accounts.get(tenant).map(|account| Arc::clone(&account)) else { return };
        let mut of = lock(&account);
        let (month, hour) = (Month::of(Hour::of(now)), Hour::of(now));
        if let Some((wanted, rows)) = stored {
            let mut ended = match &of.known {
                Some(known) if known.month == month && known.until == wanted.from => known.ended.clone(),
                _ => Spent::default(),
            };
            let until = Hour(hour.0.saturating_sub(LATE)).max(wanted.from);
            let (old, new): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.hour < until);
            ended.add(&Spent::of(old, tariff));
            let stored = Spent::of(new, tariff);
            of.known = Some(Known { month, prices, position, ended, until, stored, live: Spent::default() });
        }
        if let Some(known) = of.known.as_mut().filter(|known| known.month == month) {
            let of_month = live.iter().filter(|row| row.hour >= month.start());
            known.live = Spent::of(of_month, tariff);
        }
        self.tell(tenant, account.settle(&mut of));
    }

    /// Tells the operator that a tenant has passed a soft bound.
    fn tell(&self, tenant: &str, passed: Option<Passed>) {
        if let Some(Passed { setting, spent, most }) = passed {
            tracing::warn!(tenant, setting, spent, most, "a tenant has spent its soft budget of this month");
        }
    }

    /// What a tenant that has a budget has spent in this month, as far as that is known.
    pub fn spent(&self, tenant: &str, now: u64) -> Option<Spent> {
        let account = Arc::clone(&*self.accounts.get(tenant)?);
        let of = lock(&account);
        let month = Month::of(Hour::of(now));
        Some(of.known.as_ref().filter(|known| known.month == month).map(Known::spent).unwrap_or_default())
    }

    /// How many tenants are over a soft bound, and how many over a hard one.
    pub fn over(&self, now: u64) -> [u64; 2] {
        let mut over = [0, 0];
        for account in &self.accounts {
            if now < account.until.load(Ordering::Relaxed) {
                let [soft, hard] = &mut over;
                match account.standing.load(Ordering::Acquire) {
                    0 => {}
                    1 => *soft += 1,
                    _ => *hard += 1,
                }
            }
        }
        over
    }

    /// Whether a tenant may go on. For each call, so the clock, milliseconds since 1970, is only asked where that matters.
    ///
    /// # Errors
    /// When it has spent all that it may in this month.
    pub fn admit(&self, tenant: &str, clock: impl FnOnce() -> u64) -> Result<Standing, Box<Exhausted>> {
        let Some(account) = self.accounts.get(tenant) else { return Ok(Standing::Within) };
        let standing = account.standing.load(Ordering::Acquire);
        if standing == 0 {
            return Ok(Standing::Within);
        }
        let (now, until) = (clock(), account.until.load(Ordering::Relaxed));
        // A new month has begun, in which nothing is spent yet.
        if now >= until {
            return Ok(Standing::Within);
        }
        if standing == 1 {
            return Ok(Standing::Soft);
        }
        let of = lock(&account);
        let spent = of.known.as_ref().map(Known::spent).unwrap_or_default();
        let wait = Duration::from_millis(until.saturating_sub(now));
        match of.budget.hard.passed(&spent, HARD) {
            Some(Passed { setting, spent, most }) => Err(Box::new(Exhausted { setting, spent, most, wait })),
            None => Ok(Standing::Soft),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cards;
    use super::*;
    use crate::meter::totals::Sums;
    use serde_json::json;

    /// A second of the CPU costs 1.50 until December, and 2 from then on.
    fn tariff() -> Tariff {
        let price = |price: &str| json!({ "devices": { "cpu": { "device_second": price } } });
        let card = serde_json::from_value(json!({ "name": "default", "currency": "EUR", "versions": [
            { "effective_from": "2026-01-01T00:00:00Z", "prices": price("1.5") },
            { "effective_from": "2026-12-01T00:00:00Z", "prices": price("2") },
        ] }))
        .unwrap();
        Tariff::new(&Cards::from([("default".to_owned(), Arc::new(card))]), &[])
    }

    fn millis(hour: &str) -> u64 {
        hour.parse::<Hour>().unwrap().millis()
    }

    fn row(hour: &str, seconds: u64) -> Row {
        let sums = Sums { device_ns: seconds * 1_000_000_000, ..Sums::default() };
        Row { hour: hour.parse().unwrap(), device: "cpu".into(), sums }
    }

    fn money(soft: Option<&str>, hard: Option<&str>) -> Budget {
        let bounds = |money: Option<&str>| Bounds {
            money: money.map(|money| money.parse().unwrap()),
            ..Bounds::default()
        };
        Budget { soft: bounds(soft), hard: bounds(hard) }
    }

    /// The store's rows, of which what is wanted is read.
    struct Read<'a>(&'a Budgets, Vec<Row>, Tariff);

    impl Read<'_> {
        /// Looks at a tenant; gives what was read of the store.
        fn look(&self, now: u64, position: u64, live: &[Row]) -> Option<Wanted> {
            let Self(budgets, stored, tariff) = self;
            let position = Position { segment: position, ..Position::default() };
            let wanted = budgets.wanted("t", now, 0, position);
            let rows = wanted.as_ref().map(|Wanted { from, to }| -> Vec<Row> {
                stored.iter().filter(|row| (*from..*to).contains(&row.hour)).cloned().collect()
            });
            budgets.take("t", (now, 0, position), wanted.as_ref().zip(rows.as_deref()), live, tariff);
            wanted
        }
    }

    #[test]
    fn over_the_soft_bound_it_is_told_and_over_the_hard_one_refused_until_the_next_month() {
        let budgets = Budgets::default();
        budgets.set("t", money(Some("3"), Some("6")));
        let now = millis("2026-11-30T23:00:00Z");
        assert_eq!(budgets.admit("t", || now), Ok(Standing::Within));
        let mut read = Read(&budgets, vec![row("2026-11-01T00:00:00Z", 1)], tariff());
        read.look(now, 0, &[]);
        assert_eq!(budgets.admit("t", || now), Ok(Standing::Within));
        // One second in the store, one in memory: 3.
        read.look(now, 0, &[row("2026-11-30T23:00:00Z", 1)]);
        assert_eq!(budgets.admit("t", || now), Ok(Standing::Soft));
        assert_eq!(budgets.over(now), [1, 0]);
        // What was in memory is in the store now, and is counted once.
        read.1.push(row("2026-11-30T23:00:00Z", 1));
        read.look(now, 1, &[]);
        assert_eq!(budgets.spent("t", now).unwrap().money.to_string(), "3");
        read.look(now, 1, &[row("2026-11-30T23:00:00Z", 2)]);
        let over = budgets.admit("t", || now).unwrap_err();
        assert_eq!((over.setting, over.spent.as_str(), over.most.as_str()), ("spend_hard", "6", "6"));
        assert_eq!((over.wait, budgets.over(now)), (Duration::from_secs(3600), [0, 1]));
        assert_eq!(budgets.admit("other", || now), Ok(Standing::Within));

        budgets.set("t", money(None, Some("6.000000000000000001")));
        assert_eq!(budgets.admit("t", || now), Ok(Standing::Within), "a change holds at once");
        budgets.set("t", money(None, Some("6")));
        let end = millis("2026-12-01T00:00:00Z");
        assert!(budgets.admit("t", || end - 1).is_err());
        assert_eq!(budgets.admit("t", || end), Ok(Standing::Within), "a new month has begun");
        assert_eq!((budgets.spent("t", end), budgets.over(end)), (Some(Spent::default()), [0, 0]));
        // What is still in memory of the month before is not of the new one, whose prices are others.
        let live = [row("2026-11-30T23:00:00Z", 2), row("2026-12-01T00:00:00Z", 1)];
        let wanted = read.look(end, 1, &live).unwrap();
        assert_eq!(
            (wanted.from.to_string().as_str(), wanted.to.0),
            ("2026-12-01T00:00:00Z", wanted.from.0 + 31 * 24)
        );
        assert_eq!(budgets.spent("t", end).unwrap().money.to_string(), "2");
    }

    #[test]
    fn after_a_restart_it_is_as_before() {
        let now = millis("2026-11-20T10:00:00Z");
        let stored: Vec<Row> = (1..=20).map(|day| row(&format!("2026-11-{day:02}T10:00:00Z"), day)).collect();
        let spent = |budgets: &Budgets| budgets.spent("t", now).unwrap().money.to_string();
        let ran = Budgets::default();
        ran.set("t", money(None, Some("315")));
        let mut read = Read(&ran, vec![], tariff());
        for row in &stored {
            read.1.push(row.clone());
            read.look(row.hour.millis(), row.hour.0, &[]);
        }
        assert_eq!(spent(&ran), "315");
        assert!(ran.admit("t", || now).is_err());
        let begun = Budgets::default();
        begun.set("t", money(None, Some("315")));
        Read(&begun, stored, tariff()).look(now, 7, &[]);
        assert_eq!(spent(&begun), "315");
        assert!(begun.admit("t", || now).is_err(), "it has spent all of it");
    }

    #[test]
    fn of_hours_that_have_ended_nothing_is_read_again() {
        let budgets = Budgets::default();
        budgets.set("t", money(None, Some("1000")));
        let stored = vec![row("2026-11-02T00:00:00Z", 1), row("2026-11-09T20:00:00Z", 2)];
        let mut read = Read(&budgets, stored, tariff());
        let now = millis("2026-11-10T00:00:00Z");
        assert_eq!(read.look(now, 0, &[]).unwrap().from.to_string(), "2026-11-01T00:00:00Z");
        assert_eq!(read.look(now, 0, &[]), None, "the store has nothing new");
        read.1.push(row("2026-11-09T20:00:00Z", 4));
        assert_eq!(read.look(now, 1, &[]).unwrap().from.to_string(), "2026-11-09T00:00:00Z");
        assert_eq!(budgets.spent("t", now).unwrap().money.to_string(), "10.5", "what came late is counted");
        let later = millis("2026-11-12T00:00:00Z");
        read.look(later, 2, &[]);
        assert_eq!(read.look(later, 3, &[]).unwrap().from.to_string(), "2026-11-11T00:00:00Z");
        assert_eq!(budgets.spent("t", later).unwrap().money.to_string(), "10.5");
        let other = budgets.wanted("t", later, 1, Position { segment: 3, ..Position::default() }).unwrap();
        assert_eq!(other.from.to_string(), "2026-11-01T00:00:00Z", "other prices are for all of the month");
    }

    #[test]
    fn the_devices_time_is_a_budget_too() {
        let budgets = Budgets::default();
        let bounds = |device_ms| Bounds { device_ms, ..Bounds::default() };
        budgets.set("t", Budget { soft: bounds(Some(1000)), hard: bounds(Some(2000)) });
        let now = millis("2026-11-10T00:00:00Z");
        let read = Read(&budgets, vec![], tariff());
        read.look(now, 0, &[row("2026-11-10T00:00:00Z", 1)]);
        assert_eq!(budgets.admit("t", || now), Ok(Standing::Soft));
        read.look(now, 0, &[row("2026-11-10T00:00:00Z", 2)]);
        let over = budgets.admit("t", || now).unwrap_err();
        assert_eq!((over.setting, over.spent.as_str(), over.most.as_str()), ("budget_hard", "2000", "2000"));
        budgets.set("t", Budget::default());
        assert_eq!(budgets.admit("t", || now), Ok(Standing::Within));
        assert!(budgets.tenants().is_empty() && budgets.spent("t", now).is_none());
    }

    #[test]
    fn the_operator_is_told_once_in_a_month() {
        let account = Account::default();
        let told = |hour: &str, seconds: u64| {
            let mut of = lock(&account);
            of.budget = money(Some("1"), None);
            let hour: Hour = hour.parse().unwrap();
            let live = Spent::of(&[row(&hour.to_string(), seconds)], &tariff());
            let (ended, stored) = (Spent::default(), Spent::default());
            let month = Month::of(hour);
            of.known = Some(Known {
                month,
                prices: 0,
                position: Position::default(),
                ended,
                until: hour,
                stored,
                live,
            });
            account.settle(&mut of).is_some()
        };
        let (may, june) = ("2026-05-31T23:00:00Z", "2026-06-01T00:00:00Z");
        assert_eq!(
            [told(may, 0), told(may, 1), told(may, 2), told(june, 0), told(june, 1), told(june, 2)],
            [false, true, false, false, true, false]
        );
    }
}
