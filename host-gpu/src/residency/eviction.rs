//! Which idle graphs go when others need their memory. Pure: the caller says what time it is.
//!
//! What a graph in memory is worth is the time that it saves: how long it would take to load again, times how often
//! it is asked for, for each byte that it occupies. The least worth goes first. Uses are counted with a half-life, so
//! that what was asked for a thousand times yesterday does not outlast what is asked for now. All in integers: two
//! machines that saw the same make the same choice.

use std::time::Duration;

use tokio::time::Instant;

/// How it is chosen which idle graph makes room for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eviction {
    /// The one that is worth the least: load time × uses ÷ bytes.
    #[default]
    Cost,
    /// The one that has been idle for longest. To compare with.
    Lru,
}

/// A use fades in steps, each of which takes 1/64 of it away. 44 of them leave half, since (1 - 1/64)^44 is 0.5001: a
/// half-life of five minutes and some seconds.
const STEP: Duration = Duration::from_secs(7);
const HALF_LIFE: u32 = 44;

/// One use, in the fixed point of the count.
const ONE: u64 = 1 << 32;

/// How often something was used lately.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Uses {
    count: u64,
    at: Instant,
}

impl Uses {
    pub fn none(now: Instant) -> Self {
        Self { count: 0, at: now }
    }

    pub fn add(&mut self, now: Instant) {
        *self = self.decayed(now);
        self.count = self.count.saturating_add(ONE);
    }

    /// What the uses until now count at `now`. Whole steps are taken, the rest of the time is kept for the next.
    fn decayed(self, now: Instant) -> Self {
        let steps = now.saturating_duration_since(self.at).as_nanos() / STEP.as_nanos();
        let at = u32::try_from(steps).ok().and_then(|steps| self.at.checked_add(STEP.checked_mul(steps)?));
        let (Some(at), Ok(steps)) = (at, u32::try_from(steps)) else { return Self::none(now) };
        let halved = self.count.checked_shr(steps / HALF_LIFE).unwrap_or(0);
        let count = (0..steps % HALF_LIFE).fold(halved, |count, _| count - (count >> 6));
        Self { count, at }
    }
}

/// A graph that may go.
#[derive(Debug)]
pub(crate) struct Candidate<K> {
    pub key: K,
    pub bytes: u64,
    pub load_time: Duration,
    pub uses: Uses,
    pub idle_since: Instant,
}

impl<K> Candidate<K> {
    /// Nanoseconds of loading that a byte of it saves per half-life, up to a constant factor.
    fn worth(&self, now: Instant) -> u128 {
        let uses = u128::from(self.uses.decayed(now).count);
        self.load_time.as_nanos().saturating_mul(uses) / u128::from(self.bytes.max(1))
    }
}

/// Those to drop for `bytes`, and no more than needed, in the order in which they go. None if all of them are not
/// enough: what cannot be met must not cost others their graphs.
pub(crate) fn choose<K>(
    eviction: Eviction,
    mut candidates: Vec<Candidate<K>>,
    bytes: u64,
    now: Instant,
) -> Vec<Candidate<K>> {
    candidates.sort_by_cached_key(|candidate| match eviction {
        Eviction::Cost => (candidate.worth(now), candidate.idle_since),
        Eviction::Lru => (0, candidate.idle_since),
    });
    let mut freed = 0_u64;
    let enough = candidates.iter().position(|candidate| {
        freed = freed.saturating_add(candidate.bytes);
        freed >= bytes
    });
    candidates.truncate(enough.filter(|_| bytes > 0).map_or(0, |last| last.saturating_add(1)));
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A candidate that took so many milliseconds to load and was used so often, all of it so many seconds ago.
    fn candidate(
        key: &'static str,
        bytes: u64,
        millis: u64,
        uses: u32,
        ago: u64,
        now: Instant,
    ) -> Candidate<&'static str> {
        let at = now - Duration::from_secs(ago);
        let mut counted = Uses::none(at);
        (0..uses).for_each(|_| counted.add(at));
        Candidate { key, bytes, load_time: Duration::from_millis(millis), uses: counted, idle_since: at }
    }

    fn now() -> Instant {
        Instant::now() + Duration::from_secs(1 << 20)
    }

    fn order(
        eviction: Eviction,
        candidates: Vec<Candidate<&'static str>>,
        bytes: u64,
        now: Instant,
    ) -> Vec<&'static str> {
        choose(eviction, candidates, bytes, now).into_iter().map(|candidate| candidate.key).collect()
    }

    #[test]
    fn the_least_load_time_times_uses_per_byte_goes_first() {
        let now = now();
        let all = || {
            vec![
                candidate("plain", 100, 10, 2, 0, now),
                candidate("large", 1000, 10, 2, 0, now),
                candidate("slow", 100, 100, 2, 0, now),
                candidate("asked for", 100, 10, 8, 0, now),
                candidate("of old", 100, 10, 2, 308, now),
            ]
        };
        let by_cost = ["large", "of old", "plain", "asked for", "slow"];
        assert_eq!(order(Eviction::Cost, all(), 1400, now), by_cost);
        assert_eq!(order(Eviction::Cost, all(), 1001, now), ["large", "of old"]);
        assert_eq!(order(Eviction::Lru, all(), 100, now), ["of old"]);
    }

    #[test]
    fn nothing_goes_for_nothing_or_in_vain() {
        let now = now();
        let all = || vec![candidate("a", 10, 1, 1, 0, now), candidate("b", 10, 1, 1, 1, now)];
        assert_eq!(order(Eviction::Cost, all(), 0, now), [""; 0]);
        assert_eq!(order(Eviction::Cost, all(), 21, now), [""; 0]);
        assert_eq!(order(Eviction::Cost, all(), 20, now), ["b", "a"]);
    }

    #[test]
    fn a_use_counts_half_after_each_half_life_however_often_one_looks() {
        let (start, half_life) = (Instant::now(), STEP * HALF_LIFE);
        let mut uses = Uses::none(start);
        uses.add(start);
        let near = |count: u64, expected: u64| count.abs_diff(expected) < expected / 500;
        assert!(near(uses.decayed(start + half_life).count, ONE / 2));
        assert!(near(uses.decayed(start + half_life * 10).count, ONE >> 10));
        let looked_at =
            (1..=3080).fold(uses, |uses, tenth| uses.decayed(start + Duration::from_millis(tenth * 100)));
        assert!(near(looked_at.count, ONE / 2));
        assert_eq!(uses.decayed(start + half_life * 100).count, 0);
    }

    proptest! {
        #[test]
        fn what_is_chosen_is_enough_and_none_of_it_too_much(
            sizes in proptest::collection::vec((1..1000_u64, 0..100_u64, 1..5_u32, 0..600_u64), 0..20),
            bytes in 0..8000_u64,
        ) {
            let now = now();
            let all = sizes.iter().map(|(b, ms, uses, ago)| candidate("", *b, *ms, *uses, *ago, now)).collect();
            let sum = |chosen: &[Candidate<&str>]| chosen.iter().map(|candidate| candidate.bytes).sum::<u64>();
            let chosen = choose(Eviction::Cost, all, bytes, now);
            let there: u64 = sizes.iter().map(|size| size.0).sum();
            match chosen.split_last() {
                Some((_, rest)) => prop_assert!(sum(&chosen) >= bytes && sum(rest) < bytes),
                None => prop_assert!(bytes == 0 || there < bytes),
            }
            prop_assert!(chosen.is_sorted_by_key(|candidate| candidate.worth(now)));
        }
    }
}
