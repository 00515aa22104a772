//! Which revision serves a call: weights, and a header by which callers stay where they are.
//!
//! Pure rules over a function's record; who keeps and serves what comes out is `node/traffic.rs`.

use http::HeaderName;
use sha2::{Digest, Sha256};

use super::{FunctionRecord, RevisionRecord, Weight};

/// Weights that a deploy has scaled add up to this much at the most; beyond it they are rounded.
const MOST_POINTS: u128 = 10_000;

impl FunctionRecord {
    /// The revision that has all of the traffic, if one has.
    pub fn settled(&self) -> Option<u64> {
        let mut with = self.traffic.iter().filter(|weight| weight.weight > 0);
        let one = with.next()?;
        with.next().is_none().then_some(one.revision)
    }

    /// Whether a revision gets calls.
    pub fn serves(&self, revision: u64) -> bool {
        self.traffic.iter().any(|weight| weight.revision == revision && weight.weight > 0)
    }

    /// Sets the weights, and remembers which revision had all of the traffic before: a rollback goes there.
    pub fn set_traffic(&mut self, traffic: Vec<Weight>) {
        let before = self.settled();
        self.traffic = traffic;
        if before.is_some() && before != self.settled() {
            self.settled_before = before;
        }
    }

    /// Gives revision `newest` so many percent of the traffic, and what is left to the others as they shared it. With 0,
    /// or where there are no others, all stays as it is.
    pub fn canary(&mut self, newest: u64, percent: u8) {
        let percent = u32::from(percent.min(100));
        let others = || self.traffic.iter().filter(|weight| weight.revision != newest);
        let total: u128 = others().map(|weight| u128::from(weight.weight)).sum();
        match percent {
            0 if !self.traffic.is_empty() => {}
            _ if percent == 100 || total == 0 => {
                self.set_traffic(vec![Weight { revision: newest, weight: 100 }]);
            }
            _ => {
                let left = u128::from(100 - percent);
                let mut traffic: Vec<(u64, u128)> =
                    others().map(|weight| (weight.revision, u128::from(weight.weight) * left)).collect();
                traffic.push((newest, u128::from(percent) * total));
                self.set_traffic(in_points(traffic));
            }
        }
    }

    /// Where a rollback goes that names no revision: to the one that had all of the traffic before; where that is not
    /// known, to the one before the newest that gets calls.
    pub fn rollback_target(&self) -> Option<u64> {
        let there = |number: &u64| self.revisions.iter().any(|revision| revision.revision == *number);
        self.settled_before.filter(there).or_else(|| {
            let newest = self.traffic.iter().filter(|weight| weight.weight > 0).map(|weight| weight.revision);
            let newest = newest.max()?;
            self.revisions.iter().map(|revision| revision.revision).filter(|number| *number < newest).max()
        })
    }

    /// Takes out the oldest revisions beyond the newest `keep`; those that get calls, and the one that a rollback goes
    /// to, stay, as does the newest of all.
    pub fn retain(&mut self, keep: usize) -> Vec<RevisionRecord> {
        let target = self.rollback_target();
        let newest = self.revisions.last().map(|revision| revision.revision);
        let mut beyond = self.revisions.len().saturating_sub(keep);
        let (mut kept, mut removed) = (Vec::new(), Vec::new());
        for revision in std::mem::take(&mut self.revisions) {
            let number = revision.revision;
            let is_needed = self.serves(number) || [target, newest].contains(&Some(number));
            if beyond > 0 && !is_needed {
                beyond -= 1;
                self.traffic.retain(|weight| weight.revision != number);
                removed.push(revision);
            } else {
                kept.push(revision);
            }
        }
        self.revisions = kept;
        removed
    }

    /// That these can be its weights, and this its header.
    ///
    /// # Errors
    /// A sentence that names what is wrong: a revision that is not there or is named twice, no weight above zero, a header
    /// that cannot be one.
    pub fn check_traffic(&self, traffic: &[Weight], sticky_header: Option<&str>) -> Result<(), String> {
        for (index, weight) in traffic.iter().enumerate() {
            if !self.revisions.iter().any(|revision| revision.revision == weight.revision) {
                let have: Vec<String> = self.revisions.iter().map(|have| have.revision.to_string()).collect();
                return Err(format!(
                    "traffic: there is no revision {}; there are {}",
                    weight.revision,
                    have.join(", ")
                ));
            }
            if traffic.iter().skip(index + 1).any(|other| other.revision == weight.revision) {
                return Err(format!("traffic: revision {} is named twice", weight.revision));
            }
        }
        if traffic.iter().all(|weight| weight.weight == 0) {
            return Err("traffic: at least one weight must be above 0".to_owned());
        }
        match sticky_header.map(|name| (name, HeaderName::from_bytes(name.as_bytes()))) {
            Some((name, Err(_))) => {
                Err(format!("sticky_header: `{}` is not a header's name", name.escape_default()))
            }
            _ => Ok(()),
        }
    }
}

/// The same shares in whole numbers: exactly, of 100 if that is possible, or else rounded to [`MOST_POINTS`].
fn in_points(shares: Vec<(u64, u128)>) -> Vec<Weight> {
    let divisor = shares.iter().map(|(_, share)| *share).fold(0, gcd).max(1);
    let mut points: Vec<(u64, u128)> =
        shares.into_iter().map(|(revision, share)| (revision, share / divisor)).collect();
    let total: u128 = points.iter().map(|(_, share)| *share).sum();
    if total > 0 && total < 100 && 100 % total == 0 {
        points.iter_mut().for_each(|(_, share)| *share *= 100 / total);
    } else if total > MOST_POINTS {
        points.iter_mut().for_each(|(_, share)| *share = (*share * MOST_POINTS + total / 2) / total);
    }
    let weight = |(revision, share)| Weight { revision, weight: u32::try_from(share).unwrap_or(u32::MAX) };
    points.into_iter().map(weight).collect()
}

fn gcd(one: u128, other: u128) -> u128 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// The index of the weight that call `number` falls to: weights are kept exactly over any long run of calls, and calls that
/// follow each other are spread.
pub fn spread(number: u64, weights: impl Iterator<Item = u32> + Clone) -> Option<usize> {
    let total: u64 = weights.clone().map(u64::from).sum();
    // Multiples of the golden ratio fall evenly into any interval (Weyl, 1916).
    let point = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut left = u64::try_from((u128::from(point) * u128::from(total)) >> 64).unwrap_or(0);
    for (index, weight) in weights.enumerate() {
        match left.checked_sub(u64::from(weight)) {
            Some(rest) => left = rest,
            None => return Some(index),
        }
    }
    None
}

/// The revision that a header's value belongs to: always the same while the weights are, and when one weight grows, values
/// move to that revision and between no others. Weighted rendezvous hashing: each revision's score is that of an
/// exponential clock with its weight as the rate (Schindelhauer and Schomaker, 2005).
pub fn sticky(value: &[u8], weights: impl Iterator<Item = (u64, u32)>) -> Option<u64> {
    let score = |(revision, weight): (u64, u32)| {
        let hash = Sha256::new().chain_update(revision.to_le_bytes()).chain_update(value).finalize();
        let bits = hash.iter().take(6).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        // 48 bits are a whole number to a double; the half keeps the logarithm finite.
        let uniform = (bits as f64 + 0.5) / (1_u64 << 48) as f64;
        (revision, -uniform.ln() / f64::from(weight))
    };
    let scores = weights.filter(|(_, weight)| *weight > 0).map(score);
    scores.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(revision, _)| revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::FunctionConfig;

    fn record(revisions: u64, traffic: &[(u64, u32)]) -> FunctionRecord {
        let revision = |revision| RevisionRecord {
            revision,
            digest: revision.to_string(),
            bytes: 1,
            config: FunctionConfig::default(),
            imports: vec![],
            created: crate::now(),
            signed_by: None,
            created_by: None,
        };
        FunctionRecord {
            tenant: "t".to_owned(),
            name: "f".to_owned(),
            revisions: (1..=revisions).map(revision).collect(),
            traffic: weights(traffic),
            sticky_header: None,
            settled_before: None,
        }
    }

    fn weights(traffic: &[(u64, u32)]) -> Vec<Weight> {
        traffic.iter().map(|&(revision, weight)| Weight { revision, weight }).collect()
    }

    fn numbers(record: &FunctionRecord) -> Vec<u64> {
        record.revisions.iter().map(|revision| revision.revision).collect()
    }

    #[test]
    fn a_canary_gets_its_percent_and_the_others_share_the_rest_as_before() {
        let after = |traffic: &[(u64, u32)], percent| {
            let mut record = record(4, traffic);
            record.canary(4, percent);
            record.traffic
        };
        assert_eq!(after(&[(1, 1)], 10), weights(&[(1, 90), (4, 10)]));
        assert_eq!(after(&[(1, 90), (2, 10)], 10), weights(&[(1, 81), (2, 9), (4, 10)]));
        assert_eq!(after(&[(1, 90), (2, 10)], 100), weights(&[(4, 100)]));
        assert_eq!(after(&[(1, 90), (2, 10)], 0), weights(&[(1, 90), (2, 10)]), "it waits");
        assert_eq!(after(&[], 10), weights(&[(4, 100)]), "there is no other");
        assert_eq!(after(&[(1, 2), (2, 1)], 50), weights(&[(1, 2), (2, 1), (4, 3)]), "exact, if not of 100");
        let rounded = after(&[(1, u32::MAX), (2, u32::MAX - 1)], 33);
        assert_eq!(rounded, weights(&[(1, 3350), (2, 3350), (4, 3300)]));
    }

    #[test]
    fn a_rollback_goes_to_what_had_all_of_the_traffic_before() {
        let mut it = record(1, &[(1, 100)]);
        assert_eq!(it.rollback_target(), None, "there is one");
        it = record(3, &[(1, 100)]);
        it.canary(2, 10);
        assert_eq!(it.rollback_target(), Some(1));
        it.set_traffic(weights(&[(1, 10), (2, 90)]));
        it.set_traffic(weights(&[(1, 0), (2, 100)]));
        assert_eq!(it.rollback_target(), Some(1), "a canary that has grown up by steps");
        it.set_traffic(weights(&[(1, 100)]));
        assert_eq!(it.rollback_target(), Some(2), "back again");
        it.set_traffic(weights(&[(1, 7)]));
        assert_eq!(it.rollback_target(), Some(2), "the same split in other numbers is no change");
        it = record(3, &[(3, 1)]);
        assert_eq!(it.rollback_target(), Some(2), "of a record that does not say");
    }

    #[test]
    fn the_oldest_revisions_go_but_not_those_that_are_needed() {
        let mut it = record(5, &[(1, 1), (2, 0), (5, 9)]);
        it.settled_before = Some(3);
        let removed: Vec<u64> = it.retain(2).iter().map(|removed| removed.revision).collect();
        assert_eq!((removed, numbers(&it)), (vec![2, 4], vec![1, 3, 5]));
        assert_eq!(it.traffic, weights(&[(1, 1), (5, 9)]), "a weight of nothing goes with its revision");
        let mut it = record(2, &[(1, 1)]);
        assert!(it.retain(1).is_empty(), "one that gets calls, and one that is to get some");
        let mut it = record(5, &[(5, 1)]);
        assert!(it.retain(5).is_empty());
        it.retain(3);
        assert_eq!(numbers(&it), [3, 4, 5]);
    }

    #[test]
    fn values_stay_and_move_only_to_what_has_grown() {
        let place = |value: u32, weights: &[(u64, u32)]| {
            sticky(&value.to_le_bytes(), weights.iter().copied()).unwrap()
        };
        let (before, after) = ([(1, 90), (2, 10), (3, 0)], [(1, 90), (2, 30), (3, 0)]);
        let mut second = [0, 0];
        for value in 0..20_000 {
            let (was, is) = (place(value, &before), place(value, &after));
            assert!(was == is || is == 2, "{value} went from {was} to {is}");
            second[0] += u32::from(was == 2);
            second[1] += u32::from(is == 2);
        }
        // Six standard deviations of 20,000 draws.
        assert!((1746..=2254).contains(&second[0]), "a tenth: {second:?}");
        assert!((4633..=5367).contains(&second[1]), "a quarter: {second:?}");
        assert_eq!(sticky(b"x", [(1, 0)].into_iter()), None);
    }

    #[test]
    fn calls_are_spread_by_weight() {
        let mut counts = [0_u32; 3];
        for number in 1..=10_000 {
            counts[spread(number, [90, 0, 10].into_iter()).unwrap()] += 1;
        }
        assert!((995..=1005).contains(&counts[2]) && counts[1] == 0, "{counts:?}");
        assert_eq!(spread(1, [0, 0].into_iter()), None);
    }
}
