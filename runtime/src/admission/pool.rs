//! Permits of which each tenant may have some kept for it, and whose numbers change while they are held.
//!
//! A tenant below its floor takes a permit whenever one is free. All others take only what is over after the floors that are
//! not filled, so that a floor is there however much others hold. Who waits is served in order of arrival, but for those
//! whom the floors of others keep waiting. A lower number or a new floor takes nothing away from who holds: it is so as soon
//! as permits come back.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// The permits. One lock, held for a look-up and no longer.
pub struct Pool(Mutex<Books>);

/// Who holds what, who waits, and who holds a permit that it need not.
#[derive(Default)]
struct Books {
    most: u32,
    held: u32,
    /// What the floors still lack, over all tenants.
    unfilled: u32,
    tenants: HashMap<Arc<str>, Account>,
    arrivals: u64,
    waiting: BTreeMap<u64, (Arc<str>, oneshot::Sender<Permit>)>,
    idle: BTreeMap<u64, (Arc<str>, oneshot::Sender<()>)>,
}

#[derive(Default)]
struct Account {
    floor: u32,
    held: u32,
}

impl Account {
    fn unfilled(&self) -> u32 {
        self.floor.saturating_sub(self.held)
    }
}

impl Books {
    fn is_below_its_floor(&self, tenant: &str) -> bool {
        self.tenants.get(tenant).is_some_and(|account| account.unfilled() > 0)
    }

    fn may_take(&self, tenant: &str) -> bool {
        let rest = if self.is_below_its_floor(tenant) { 0 } else { self.unfilled };
        self.held.saturating_add(rest) < self.most
    }

    /// Changes a tenant's account, and what the floors lack with it.
    fn change(&mut self, tenant: &Arc<str>, change: impl FnOnce(&mut Account)) {
        let account = self.tenants.entry(Arc::clone(tenant)).or_default();
        let before = account.unfilled();
        change(account);
        let (after, gone) = (account.unfilled(), account.floor == 0 && account.held == 0);
        self.unfilled = self.unfilled.saturating_sub(before).saturating_add(after);
        if gone {
            self.tenants.remove(tenant);
        }
    }

    fn take(&mut self, tenant: &Arc<str>) {
        self.held = self.held.saturating_add(1);
        self.change(tenant, |account| account.held = account.held.saturating_add(1));
    }

    fn give_back(&mut self, tenant: &Arc<str>) {
        self.held = self.held.saturating_sub(1);
        self.change(tenant, |account| account.held = account.held.saturating_sub(1));
    }

    fn arrive(&mut self) -> u64 {
        self.arrivals = self.arrivals.wrapping_add(1);
        self.arrivals
    }

    /// The first of those who wait and may take, with a permit that is theirs.
    fn next(&mut self) -> Option<(Arc<str>, oneshot::Sender<Permit>)> {
        if self.held >= self.most {
            return None;
        }
        let (number, _) = self.waiting.iter().find(|(_, (tenant, _))| self.may_take(tenant))?;
        let number = *number;
        let (tenant, turn) = self.waiting.remove(&number)?;
        self.take(&tenant);
        Some((tenant, turn))
    }

    /// Whether somebody who waits could go on if this tenant gave one back.
    fn is_wanted(&self, tenant: &str) -> bool {
        let account = self.tenants.get(tenant);
        let beyond = account.is_some_and(|account| account.held > account.floor);
        self.waiting.values().any(|(waits, _)| beyond || **waits == *tenant || self.is_below_its_floor(waits))
    }

    /// Tells one idle holder whose permit would help that it is wanted.
    fn press(&mut self) {
        let found = self.idle.iter().find(|(_, (tenant, _))| self.is_wanted(tenant));
        let Some(number) = found.map(|(number, _)| *number) else { return };
        if let Some((_, tell)) = self.idle.remove(&number) {
            // Whoever stops listening at this moment finds that it was told, and presses in its turn.
            let _ = tell.send(());
        }
    }
}

impl Pool {
    pub fn new(most: u32) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Books { most, ..Books::default() })))
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are, from now on.
    pub fn resize(self: &Arc<Self>, most: u32) {
        self.books().most = most;
        self.serve();
    }

    /// How many are kept for a tenant, from now on.
    pub fn reserve(self: &Arc<Self>, tenant: &Arc<str>, floor: u32) {
        self.books().change(tenant, |account| account.floor = floor);
        self.serve();
    }

    /// How many are held.
    pub fn held(&self) -> u32 {
        self.books().held
    }

    /// How many there are.
    pub fn most(&self) -> u32 {
        self.books().most
    }

    /// A permit, if the tenant may take one now.
    pub fn try_enter(self: &Arc<Self>, tenant: &Arc<str>) -> Option<Permit> {
        let mut books = self.books();
        // Whoever waits and may take has been served already.
        books.may_take(tenant).then(|| books.take(tenant))?;
        Some(self.permit(tenant))
    }

    /// A permit, in order of arrival; `None` after `patience`. Whoever has to wait makes somebody idle, if there is one whose
    /// permit would help, end for it.
    pub async fn enter(self: &Arc<Self>, tenant: &Arc<str>, patience: Duration) -> Option<Permit> {
        if let Some(permit) = self.try_enter(tenant) {
            return Some(permit);
        }
        let (turn, mine) = oneshot::channel();
        let number = {
            let mut books = self.books();
            let number = books.arrive();
            books.waiting.insert(number, (Arc::clone(tenant), turn));
            books.press();
            number
        };
        // One that came back meanwhile.
        self.serve();
        let _waits = Waits { pool: self, number };
        tokio::time::timeout(patience, mine).await.ok()?.ok()
    }

    /// Tells another idle holder, where one was told and did not end.
    pub fn pass_on(&self) {
        self.books().press();
    }

    /// For who holds a permit and is idle: ready when it must end, for somebody waits whom that would help.
    pub async fn wanted(&self, tenant: &Arc<str>) {
        let (tell, told) = oneshot::channel();
        let number = {
            let mut books = self.books();
            if books.is_wanted(tenant) {
                return;
            }
            let number = books.arrive();
            books.idle.insert(number, (Arc::clone(tenant), tell));
            number
        };
        let mut idle = Idle { pool: self, number, told: Some(told) };
        if let Some(told) = &mut idle.told {
            // It is told, or forgotten with the pool.
            let _ = told.await;
        }
        idle.told = None;
    }

    /// Gives what is free to those who wait.
    fn serve(self: &Arc<Self>) {
        loop {
            let Some((tenant, turn)) = self.books().next() else { return };
            if let Err(unwanted) = turn.send(self.permit(&tenant)) {
                // It went away at this moment; the permit is for the next one.
                unwanted.forget();
                self.books().give_back(&tenant);
            }
        }
    }

    fn permit(self: &Arc<Self>, tenant: &Arc<str>) -> Permit {
        Permit(Some((Arc::clone(self), Arc::clone(tenant))))
    }
}

/// Held while what it stands for is used.
pub struct Permit(Option<(Arc<Pool>, Arc<str>)>);

impl Permit {
    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some((pool, tenant)) = self.0.take() {
            pool.books().give_back(&tenant);
            pool.serve();
        }
    }
}

/// A place among those who wait, given up on drop.
struct Waits<'a> {
    pool: &'a Pool,
    number: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.pool.books().waiting.remove(&self.number);
    }
}

/// An idle holder that listens.
struct Idle<'a> {
    pool: &'a Pool,
    number: u64,
    told: Option<oneshot::Receiver<()>>,
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        let Some(mut told) = self.told.take() else { return };
        let mut books = self.pool.books();
        books.idle.remove(&self.number);
        if told.try_recv().is_ok() {
            // It was told, but does not end: it has something to do again.
            books.press();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const LONG: Duration = Duration::from_secs(60);

    fn names() -> [Arc<str>; 2] {
        ["a".into(), "b".into()]
    }

    /// Takes so many.
    fn take(pool: &Arc<Pool>, tenant: &Arc<str>, many: usize) -> Vec<Permit> {
        (0..many).map_while(|_| pool.try_enter(tenant)).collect()
    }

    #[tokio::test]
    async fn a_floor_is_there_however_much_others_hold_and_no_more() {
        let ([a, b], pool) = (names(), Pool::new(5));
        pool.reserve(&b, 2);
        let flood = take(&pool, &a, 100);
        assert_eq!(flood.len(), 3, "what is kept for the other is not taken");
        let mut more = Box::pin(pool.enter(&a, LONG));
        assert!(more.as_mut().now_or_never().is_none());
        let floor = take(&pool, &b, 100);
        assert_eq!(floor.len(), 2, "its floor, and nothing beyond it");
        drop(floor);
        assert!(more.as_mut().now_or_never().is_none(), "the floor is kept again");
        let mut of_floor = take(&pool, &b, 2);
        let mut third = Box::pin(pool.enter(&b, LONG));
        assert!(third.as_mut().now_or_never().is_none());
        drop(flood);
        assert!(more.await.is_some(), "who came first is first");
        of_floor.push(third.await.unwrap());
        assert_eq!(take(&pool, &b, 100).len(), 2, "beyond its floor it takes as everyone does");
    }

    #[tokio::test]
    async fn floors_and_sizes_change_while_permits_are_held() {
        let ([a, b], pool) = (names(), Pool::new(2));
        let mut flood = take(&pool, &a, 2);
        pool.reserve(&b, 1);
        assert_eq!(pool.held(), 2, "nothing is taken away");
        let mut floor = Box::pin(pool.enter(&b, LONG));
        let mut more = Box::pin(pool.enter(&a, LONG));
        assert!(more.as_mut().now_or_never().is_none() && floor.as_mut().now_or_never().is_none());
        flood.pop();
        let floor = floor.await.unwrap();
        assert!(more.as_mut().now_or_never().is_none());
        pool.resize(3);
        flood.push(more.await.unwrap());
        pool.resize(1);
        drop(floor);
        flood.pop();
        assert_eq!((pool.held(), take(&pool, &a, 9).len()), (1, 0), "fewer than are held");
        drop(flood);
        assert_eq!(take(&pool, &a, 9).len(), 0, "the one that there is, is the other's");
        pool.reserve(&b, 0);
        assert_eq!(take(&pool, &a, 9).len(), 1);
        assert_eq!(pool.books().tenants.len(), 0, "nobody is remembered who has nothing");
    }

    #[tokio::test]
    async fn patience_ends_and_who_goes_away_is_passed_over() {
        let ([a, _], pool) = (names(), Pool::new(1));
        let held = pool.try_enter(&a).unwrap();
        assert!(pool.enter(&a, Duration::from_millis(1)).await.is_none());
        let mut gone = Box::pin(pool.enter(&a, LONG));
        let mut stays = Box::pin(pool.enter(&a, LONG));
        assert!(gone.as_mut().now_or_never().is_none() && stays.as_mut().now_or_never().is_none());
        drop(held);
        // It has its turn, and goes away before it sees that.
        drop(gone);
        assert!(stays.await.is_some());
        assert_eq!((pool.held(), pool.books().waiting.len()), (0, 0));
    }

    #[tokio::test]
    async fn an_idle_holder_hears_that_another_wants_its_permit() {
        let ([a, _], pool) = (names(), Pool::new(1));
        let held = pool.try_enter(&a).unwrap();
        let mut idle = Box::pin(pool.wanted(&a));
        assert!(idle.as_mut().now_or_never().is_none(), "nobody waits");
        let mut caller = Box::pin(pool.enter(&a, LONG));
        assert!(caller.as_mut().now_or_never().is_none());
        idle.await;
        drop(held);
        let _held = caller.await.unwrap();
        // What was told to nobody is not held against the next.
        assert!(pool.wanted(&a).now_or_never().is_none());
        assert!(pool.books().idle.is_empty());
    }

    #[tokio::test]
    async fn an_idle_holder_within_its_floor_is_left_alone_and_one_beyond_it_is_not() {
        let ([a, b], pool) = (names(), Pool::new(3));
        pool.reserve(&b, 1);
        let _of_a = take(&pool, &a, 1);
        let _of_b = take(&pool, &b, 2);
        let mut caller = Box::pin(pool.enter(&a, LONG));
        let mut first = Box::pin(pool.wanted(&b));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(caller.as_mut().now_or_never().is_none());
        first.await;
        pool.reserve(&b, 2);
        let mut kept = Box::pin(pool.wanted(&b));
        assert!(kept.as_mut().now_or_never().is_none(), "both are its floor");
        let mut other = Box::pin(pool.wanted(&a));
        assert!(other.as_mut().now_or_never().is_some(), "its own tenant waits");
    }

    #[tokio::test]
    async fn one_that_was_told_and_has_work_again_passes_it_on() {
        let ([a, b], pool) = (names(), Pool::new(2));
        let _held = take(&pool, &a, 2);
        let (mut first, mut second) = (Box::pin(pool.wanted(&a)), Box::pin(pool.wanted(&a)));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        let mut caller = Box::pin(pool.enter(&b, LONG));
        assert!(caller.as_mut().now_or_never().is_none());
        drop(first);
        second.await;
    }
}
