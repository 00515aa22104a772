//! The meter's clock: milliseconds since 1970, UTC, that never go back, whatever happens to the machine's.
//!
//! It follows the wall clock forward. Where the wall clock is behind the line that the meter has shown, because it was set
//! back or because the log has records of a later time, the meter goes on with the monotonic clock until the wall clock has
//! come up with it. So hours come in order, and an hour that has ended gets no more records. A wall clock that is set forward
//! by mistake is followed too: the meter waits there until that time has come.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How far behind the wall clock may be before that is a step back, and not two clocks that are read one after the other.
const STEP: Duration = Duration::from_secs(1);

/// Where a clock reads the time.
pub trait Sources: Send {
    /// Since 1970, UTC, as the machine has it.
    fn wall(&self) -> Duration;
    /// Since any moment; it never goes back.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
pub struct Machine(Instant);

impl Default for Machine {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Sources for Machine {
    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

impl<S: Sources + ?Sized> Sources for Box<S> {
    fn wall(&self) -> Duration {
        (**self).wall()
    }

    fn monotonic(&self) -> Duration {
        (**self).monotonic()
    }
}

/// A clock that never goes back.
pub struct Clock<S = Machine>(Mutex<Line<S>>);

/// What the clock shows: what the monotonic one does, and `ahead`.
struct Line<S> {
    sources: S,
    ahead: Duration,
    /// How far the wall clock is behind, as of the newest step back.
    behind: Duration,
    steps: u64,
}

impl<S: Sources> Clock<S> {
    /// One that shows no time before `last`, milliseconds since 1970.
    pub fn new(sources: S, last: u64) -> Self {
        let ahead = Duration::from_millis(last).saturating_sub(sources.monotonic());
        let clock = Self(Mutex::new(Line { sources, ahead, behind: Duration::ZERO, steps: 0 }));
        clock.now();
        clock
    }

    /// Milliseconds since 1970, UTC; never less than it said before.
    pub fn now(&self) -> u64 {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, monotonic) = (line.sources.wall(), line.sources.monotonic());
        let shown = monotonic.saturating_add(line.ahead);
        let behind = shown.saturating_sub(wall);
        if behind.is_zero() {
            line.ahead = wall.saturating_sub(monotonic);
            line.behind = Duration::ZERO;
        } else if behind > line.behind.saturating_add(STEP) {
            line.steps += 1;
            line.behind = behind;
            tracing::warn!(
                "the machine's clock is {} behind the newest usage records; they go on with the monotonic clock until \
                 it has come up with them",
                humantime::format_duration(Duration::from_secs(behind.as_secs()))
            );
        }
        u64::try_from(shown.max(wall).as_millis()).unwrap_or(u64::MAX)
    }

    /// How often the wall clock was found to have been set back.
    pub fn steps(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).steps
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::Arc;

    use super::*;

    /// Clocks that stand still until they are set: wall and monotonic, in milliseconds.
    #[derive(Clone, Default)]
    pub struct Set(Arc<Mutex<(u64, u64)>>);

    impl Set {
        pub fn at(wall: u64) -> Self {
            Self(Arc::new(Mutex::new((wall, 5_000))))
        }

        /// Time goes by on both.
        pub fn pass(&self, millis: u64) {
            let mut both = self.0.lock().unwrap();
            *both = (both.0 + millis, both.1 + millis);
        }

        /// Somebody sets the wall clock.
        pub fn step(&self, to: u64) {
            self.0.lock().unwrap().0 = to;
        }
    }

    impl Sources for Set {
        fn wall(&self) -> Duration {
            Duration::from_millis(self.0.lock().unwrap().0)
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.lock().unwrap().1)
        }
    }

    const HOUR: u64 = 3_600_000;
    const START: u64 = 1_800_000_000_000;

    #[test]
    fn an_hour_back_is_not_followed_until_it_has_passed() {
        let set = Set::at(START);
        let clock = Clock::new(set.clone(), 0);
        assert_eq!((clock.now(), clock.steps()), (START, 0));
        set.pass(10);
        set.step(START + 10 - HOUR);
        assert_eq!(clock.now(), START + 10);
        for minute in 1..=60 {
            set.pass(60_000);
            assert_eq!(clock.now(), START + 10 + minute * 60_000, "on the monotonic clock");
        }
        assert_eq!(clock.steps(), 1, "told once");
        // Another one, on top of the first.
        set.step(START - HOUR);
        assert_eq!((clock.now(), clock.steps()), (START + 10 + HOUR, 2));
        // It is set right: followed again, and the next step back is a new one.
        set.step(START + 2 * HOUR);
        assert_eq!((clock.now(), clock.steps()), (START + 2 * HOUR, 2));
        set.step(START);
        assert_eq!((clock.now(), clock.steps()), (START + 2 * HOUR, 3));
    }

    #[test]
    fn a_step_forward_is_followed_at_once() {
        let set = Set::at(START);
        let clock = Clock::new(set.clone(), 0);
        set.step(START + HOUR);
        assert_eq!((clock.now(), clock.steps()), (START + HOUR, 0));
        set.pass(1);
        assert_eq!(clock.now(), START + HOUR + 1);
    }

    #[test]
    fn a_start_before_the_newest_record_goes_on_from_it() {
        let set = Set::at(START - HOUR);
        let clock = Clock::new(set.clone(), START);
        assert_eq!((clock.now(), clock.steps()), (START, 1));
        set.pass(7);
        assert_eq!((clock.now(), clock.steps()), (START + 7, 1));
    }

    #[test]
    fn a_wall_clock_that_is_a_little_behind_is_no_step() {
        let set = Set::at(START);
        let clock = Clock::new(set.clone(), 0);
        set.step(START - 900);
        assert_eq!((clock.now(), clock.steps()), (START, 0));
        set.step(START - 1_100);
        assert_eq!((clock.now(), clock.steps()), (START, 1));
    }
}
