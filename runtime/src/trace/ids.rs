//! Ids of traces and spans: random, made without asking the system.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    static NUMBERS: RefCell<Numbers> = RefCell::new(Numbers::seeded());
}

/// A trace's id: 16 bytes, not all zero.
pub fn trace() -> [u8; 16] {
    loop {
        let (high, low) = NUMBERS.with_borrow_mut(|numbers| (numbers.next(), numbers.next()));
        let id = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        if id != [0; 16] {
            return id;
        }
    }
}

/// A span's id: 8 bytes, not all zero.
pub fn span() -> [u8; 8] {
    loop {
        let id = number();
        if id != 0 {
            return id.to_be_bytes();
        }
    }
}

/// Any number.
pub fn number() -> u64 {
    NUMBERS.with_borrow_mut(Numbers::next)
}

/// xoshiro256++ by Blackman and Vigna. Ids tell calls apart; they are no secrets.
struct Numbers([u64; 4]);

impl Numbers {
    fn seeded() -> Self {
        let seed = crate::random::<32>().ok().map(|bytes| {
            let mut words = [0; 4];
            for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            }
            words
        });
        // The standard library's keys come from the system too.
        let other = || [0, 1, 2, 3].map(|number: u64| RandomState::new().hash_one(number));
        Self(seed.filter(|words| *words != [0; 4]).unwrap_or_else(other))
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference() {
        // The authors' C code, from the state 1, 2, 3, 4.
        let mut numbers = Numbers([1, 2, 3, 4]);
        let first: Vec<u64> = (0..4).map(|_| numbers.next()).collect();
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn ids_differ_within_a_thread_and_between_threads() {
        let make = || (0..1000).map(|_| trace()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(make)).collect();
        let ids: HashSet<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(ids.len(), 4000);
        let spans: HashSet<_> = (0..1000).map(|_| span()).collect();
        assert_eq!(spans.len(), 1000);
        assert!(!spans.contains(&[0; 8]));
    }
}
