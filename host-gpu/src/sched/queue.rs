//! Who may wait for a device. Pure.
//!
//! Requests that wait are bounded for the device and for each tenant, and one whose deadline comes before it can be done
//! does not wait at all. What finds a free lane is no queue's business: it is bounded by the lanes.
//!
//! Tenants that fill the device's queue keep nobody out. While it is full, a tenant may still have its even part of it
//! waiting: the queue's length by the tenants that wait, at least one. Those that have more keep it, so this goes on until
//! twice as many wait as the queue is long; then a tenant may have one. So no more ever wait than twice the queue's length
//! and one for each tenant, and who has none waiting is never refused for others.

use std::collections::HashMap;
use std::sync::Arc;

use super::fair::{Fair, Rider};

/// The requests that wait for a device, by tenant.
#[derive(Debug)]
pub(crate) struct Queue {
    most: usize,
    lanes: u64,
    all: usize,
    /// Those that have any.
    tenants: HashMap<Arc<str>, usize>,
}

/// A request that asks for a lane.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    pub tenant: &'a Arc<str>,
    /// The most requests of its tenant that may wait.
    pub most: usize,
    /// As whose request it takes its turn.
    pub rider: &'a Rider,
    /// Whether it finds no free lane.
    pub waits: bool,
    /// Nanoseconds of a lane that it takes at least, as far as is known.
    pub expected: u64,
    /// Nanoseconds until its deadline, if it has one.
    pub left: Option<u64>,
}

/// Why a request may not wait. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    QueueFull { queued: usize },
    TenantQueueFull { queued: usize },
    DeadlineTooSoon { needed: u64, left: u64 },
}

impl Queue {
    /// For a device of so many lanes, for which at most so many requests wait.
    pub fn new(most: usize, lanes: usize) -> Self {
        Self { most, lanes: u64::try_from(lanes).unwrap_or(1).max(1), all: 0, tenants: HashMap::new() }
    }

    /// Whether a request may wait for its turn among those of `fair`. Its tenant's own that are before it take their time
    /// first, on all lanes at best; what other tenants have waiting need not be before it.
    ///
    /// # Errors
    /// Why it may not.
    pub fn admit(&self, fair: &Fair, asking: &Asking<'_>) -> Result<(), Refused> {
        let Asking { tenant, most, rider, waits, expected, left } = *asking;
        if waits {
            let mine = self.of(tenant);
            if self.all >= self.most && mine >= self.part(mine) {
                return Err(Refused::QueueFull { queued: self.all });
            }
            if mine >= most {
                return Err(Refused::TenantQueueFull { queued: mine });
            }
        }
        let Some(left) = left else { return Ok(()) };
        let ahead = fair.expected(rider.class, &rider.tenant) / self.lanes;
        let needed = expected.saturating_add(ahead);
        if needed > left { Err(Refused::DeadlineTooSoon { needed, left }) } else { Ok(()) }
    }

    /// One more waits.
    pub fn enter(&mut self, tenant: &Arc<str>) {
        *self.tenants.entry(Arc::clone(tenant)).or_default() += 1;
        self.all += 1;
    }

    /// One does not wait any more.
    pub fn leave(&mut self, tenant: &Arc<str>) {
        let Some(queued) = self.tenants.get_mut(tenant) else { return };
        *queued -= 1;
        self.all -= 1;
        if *queued == 0 {
            self.tenants.remove(tenant);
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.all
    }

    /// How many of each tenant wait, by name.
    pub fn by_tenant(&self) -> Vec<(Arc<str>, usize)> {
        let mut queued: Vec<_> = self.tenants.iter().map(|(tenant, n)| (Arc::clone(tenant), *n)).collect();
        queued.sort();
        queued
    }

    /// How many a tenant that has so many waiting may have while the queue is full.
    fn part(&self, mine: usize) -> usize {
        let tenants = self.tenants.len() + usize::from(mine == 0);
        let even = if self.all < self.most.saturating_mul(2) { self.most / tenants.max(1) } else { 0 };
        // Where nobody may wait, nobody does.
        even.max(self.most.min(1))
    }

    fn of(&self, tenant: &Arc<str>) -> usize {
        self.tenants.get(tenant).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::sched::Class;
    use crate::sched::fair::Sharing;

    fn rider(tenant: &str) -> Rider {
        Rider { tenant: tenant.into(), class: Class::Standard, weight: 1, rows: 1 }
    }

    fn asking<'a>(rider: &'a Rider, most: usize) -> Asking<'a> {
        Asking { tenant: &rider.tenant, most, rider, waits: true, expected: 0, left: None }
    }

    #[test]
    fn so_many_may_wait_of_all_and_of_one() {
        let (mut queue, fair) = (Queue::new(3, 1), Fair::new(Sharing::default()));
        let (a, b) = (rider("a"), rider("b"));
        for queued in 0..2 {
            assert_eq!(queue.len(), queued);
            assert_eq!(queue.admit(&fair, &asking(&a, 2)), Ok(()));
            queue.enter(&a.tenant);
        }
        assert_eq!(queue.admit(&fair, &asking(&a, 2)), Err(Refused::TenantQueueFull { queued: 2 }));
        assert_eq!(queue.admit(&fair, &Asking { waits: false, ..asking(&a, 2) }), Ok(()), "it does not wait");
        queue.enter(&b.tenant);
        assert_eq!(queue.admit(&fair, &asking(&b, 2)), Err(Refused::QueueFull { queued: 3 }));
        assert_eq!(queue.by_tenant(), [("a".into(), 2), ("b".into(), 1)]);
        queue.leave(&b.tenant);
        queue.leave(&b.tenant);
        assert_eq!((queue.len(), queue.by_tenant()), (2, vec![("a".into(), 2)]));
    }

    proptest! {
        /// Whoever fills it, whatever leaves it in between.
        #[test]
        fn a_full_queue_keeps_no_tenant_out_and_is_bounded(
            most in 0..40usize,
            steps in vec((0..8usize, 1..60usize, 0..3u8), 1..300),
        ) {
            let (mut queue, fair) = (Queue::new(most, 1), Fair::new(Sharing::default()));
            for (tenant, tenant_most, goes) in steps {
                let rider = rider(&format!("t{tenant}"));
                if goes == 0 {
                    queue.leave(&rider.tenant);
                    continue;
                }
                let (all, mine) = (queue.len(), queue.of(&rider.tenant));
                let answer = queue.admit(&fair, &asking(&rider, tenant_most));
                let even = most / (queue.tenants.len() + usize::from(mine == 0)).max(1);
                let may = all < most || (mine == 0 && most > 0) || (mine < even && all < 2 * most);
                let expected = match may {
                    true if mine < tenant_most => Ok(()),
                    true => Err(Refused::TenantQueueFull { queued: mine }),
                    false => Err(Refused::QueueFull { queued: all }),
                };
                prop_assert_eq!(answer, expected);
                if answer.is_ok() {
                    queue.enter(&rider.tenant);
                }
                prop_assert!(queue.len() <= 2 * most + queue.tenants.len());
                prop_assert_eq!(queue.len(), queue.by_tenant().iter().map(|(_, queued)| queued).sum::<usize>());
            }
        }
    }

    #[test]
    fn a_deadline_must_leave_time_for_its_run_and_for_its_tenants_before_it() {
        let (queue, mut fair) = (Queue::new(9, 2), Fair::new(Sharing::default()));
        let (a, b) = (rider("a"), rider("b"));
        fair.arrive(1, 1, &a, (0, 60), 0);
        let due = |rider, left| {
            let asking = Asking { expected: 50, left: Some(left), ..asking(rider, 9) };
            queue.admit(&fair, &asking)
        };
        // There are two lanes for what is before it.
        assert_eq!(due(&a, 80), Ok(()));
        assert_eq!(due(&a, 79), Err(Refused::DeadlineTooSoon { needed: 80, left: 79 }));
        assert_eq!(due(&b, 50), Ok(()));
        assert_eq!(due(&b, 49), Err(Refused::DeadlineTooSoon { needed: 50, left: 49 }));
    }
}
