//! How long a guest computes: the CPU time of the threads that it ran on, while it ran on them.
//!
//! Whoever polls a guest does it through [`Meter::metered`], so that waiting costs nothing however often it is done
//! and a thread's other work is nobody's. What a host function does on the guest's thread is the guest's, but for
//! work of a device, which is taken out by [`Meter::unmetered`].

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time of one sandbox's current call. Written by the one thread that polls the guest at a time.
#[derive(Debug, Default)]
pub struct Meter {
    /// Nanoseconds up to the last time that the guest was left.
    spent: AtomicU64,
    /// The thread's clock when the guest was entered; 0 while it is not running.
    entered: AtomicU64,
}

/// The CPU time of this thread, in nanoseconds. Source: clock_gettime(2), `CLOCK_THREAD_CPUTIME_ID`.
fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

impl Meter {
    /// Begins anew with a call. Gives the time up to when the guest was last entered: what it has computed since then is the
    /// call's, so that its thread's clock, which is a call of the system, need not be asked.
    pub fn begin(&self) -> Duration {
        Duration::from_nanos(self.spent.swap(0, Ordering::Relaxed))
    }

    /// Begins anew after a call. Gives the time up to now. For the guest's own thread to do.
    pub fn restart(&self) -> Duration {
        let spent = self.spent.load(Ordering::Relaxed);
        let entered = self.entered.load(Ordering::Relaxed);
        let running = match entered {
            0 => 0,
            entered => {
                let now = thread_time().max(1);
                self.entered.store(now, Ordering::Relaxed);
                now.saturating_sub(entered)
            }
        };
        self.spent.store(0, Ordering::Relaxed);
        Duration::from_nanos(spent.saturating_add(running))
    }

    fn enter(&self) {
        self.entered.store(thread_time().max(1), Ordering::Relaxed);
    }

    fn leave(&self) {
        self.spent.store(self.nanos(), Ordering::Relaxed);
        self.entered.store(0, Ordering::Relaxed);
    }

    fn nanos(&self) -> u64 {
        let running = match self.entered.load(Ordering::Relaxed) {
            0 => 0,
            entered => thread_time().saturating_sub(entered),
        };
        self.spent.load(Ordering::Relaxed).saturating_add(running)
    }

    /// What the current call has computed so far. While the guest runs, for its own thread to ask.
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.nanos())
    }

    /// Nanoseconds that the current call had computed when the guest was last left. For other threads to ask.
    pub fn left(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    /// `guest`, with the time that it runs counted.
    pub async fn metered<F: Future>(&self, guest: F) -> F::Output {
        let mut guest = std::pin::pin!(guest);
        std::future::poll_fn(|cx| self.poll(guest.as_mut(), cx)).await
    }

    /// One poll of a guest, counted.
    pub fn poll<F: Future>(&self, guest: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.enter();
        let polled = guest.poll(cx);
        self.leave();
        polled
    }

    /// `work` that a guest waits for, not counted although it may be done on the guest's thread.
    pub async fn unmetered<F: Future>(&self, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(|cx| {
            self.leave();
            let polled = work.as_mut().poll(cx);
            self.enter();
            polled
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    /// Computes until this thread's clock has moved.
    fn compute(nanos: u64) {
        let end = thread_time() + nanos;
        while thread_time() < end {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn only_the_guests_own_time_counts() {
        let meter = Meter::default();
        compute(2_000_000);
        assert_eq!(meter.spent(), Duration::ZERO, "a thread's time before the guest is not the guest's");
        meter.metered(async { compute(1_000_000) }).now_or_never().unwrap();
        let first = meter.spent();
        assert!(first >= Duration::from_millis(1));
        compute(2_000_000);
        assert_eq!(meter.spent(), first, "nor is it between two polls");
        let waits = meter.metered(async { meter.unmetered(async { compute(1_000_000_000) }).await });
        waits.now_or_never().unwrap();
        assert!(meter.spent() - first < Duration::from_millis(500), "a device's work is not the guest's");
        let all = meter.spent();
        assert_eq!(meter.restart(), all);
        assert_eq!(meter.spent(), Duration::ZERO);
    }

    #[test]
    fn a_running_guest_can_be_asked() {
        let meter = Meter::default();
        let seen = meter.metered(async {
            compute(1_000_000);
            let seen = meter.spent();
            let first = meter.restart();
            compute(1_000_000);
            (seen, first, meter.restart())
        });
        let (seen, first, second) = seen.now_or_never().unwrap();
        assert!(seen >= Duration::from_millis(1) && first >= seen && second >= Duration::from_millis(1));
        assert!(meter.spent() < first + second, "what was given is not given again");
    }

    #[test]
    fn a_call_has_what_is_computed_from_the_entry_that_it_begins_in() {
        let meter = Meter::default();
        meter.metered(async { compute(1_000_000) }).now_or_never().unwrap();
        let before = meter.spent();
        let seen = meter.metered(async {
            compute(1_000_000);
            let before = meter.begin();
            compute(1_000_000);
            (before, meter.spent())
        });
        let (start, call) = seen.now_or_never().unwrap();
        assert_eq!(start, before, "what came before the entry is not the call's");
        assert!(call >= Duration::from_millis(2) && meter.spent() >= call, "{call:?}");
        assert_eq!((meter.begin() >= call, meter.begin()), (true, Duration::ZERO), "nothing is given twice");
    }
}
