//! What waits to be sent: so many, so many bytes, and no more. Whoever puts something in never waits.
//!
//! Putting in wakes nobody but at a whole batch: whoever sends looks at its own times, so that a call does not pay for
//! waking a thread.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::counts::{Count, Counts, add};

/// What a queue is told of the things in it.
pub trait Weighed {
    /// Bytes, about.
    fn weight(&self) -> usize;
    /// Spans, log records or points in it.
    fn count(&self) -> u64;
}

/// The most that a queue holds, and gives at one time. The bytes of one thing may be more than those of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub items: usize,
    pub bytes: usize,
    pub batch: usize,
    pub batch_bytes: usize,
}

pub struct Queue<T> {
    bounds: Bounds,
    waiting: Mutex<Waiting<T>>,
    whole: Notify,
    counts: Arc<Counts>,
    count: fn(&Counts) -> &Count,
}

struct Waiting<T> {
    items: VecDeque<Held<T>>,
    bytes: usize,
    /// Nothing is taken any more.
    closed: bool,
}

/// A thing with what it weighed and counted when it came: it may grow yet.
struct Held<T> {
    item: T,
    weight: usize,
    count: u64,
}

impl<T: Weighed> Queue<T> {
    pub fn new(bounds: Bounds, counts: Arc<Counts>, count: fn(&Counts) -> &Count) -> Self {
        let waiting = Mutex::new(Waiting { items: VecDeque::new(), bytes: 0, closed: false });
        Self { bounds, waiting, whole: Notify::new(), counts, count }
    }

    pub fn count(&self) -> &Count {
        (self.count)(&self.counts)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something in, or drops it where there is no room.
    pub fn put(&self, item: T) {
        let (weight, count) = (item.weight(), item.count());
        let mut waiting = self.waiting();
        let bytes = waiting.bytes.saturating_add(weight);
        if waiting.closed || waiting.items.len() >= self.bounds.items || bytes > self.bounds.bytes {
            drop(waiting);
            return add(&self.count().dropped, count);
        }
        let batches = |bytes: usize| bytes / self.bounds.batch_bytes.max(1);
        let is_whole = (waiting.items.len() + 1).is_multiple_of(self.bounds.batch)
            || batches(bytes) > batches(waiting.bytes);
        waiting.bytes = bytes;
        waiting.items.push_back(Held { item, weight, count });
        add(&self.count().queued, count);
        drop(waiting);
        if is_whole {
            self.whole.notify_one();
        }
    }

    /// Waits for a whole batch, at most so long, or the stop.
    pub async fn wait(&self, most: Duration, stop: &CancellationToken) {
        tokio::select! {
            () = self.whole.notified() => {}
            () = tokio::time::sleep(most) => {}
            () = stop.cancelled() => {}
        }
    }

    /// What is to be sent next, and whether there is a whole batch more.
    pub fn take(&self) -> (Vec<T>, bool) {
        let mut waiting = self.waiting();
        let (mut items, mut bytes, mut count) = (vec![], 0_usize, 0);
        while let Some(next) = waiting.items.front() {
            let after = bytes.saturating_add(next.weight);
            if items.len() >= self.bounds.batch || !items.is_empty() && after > self.bounds.batch_bytes {
                break;
            }
            bytes = after;
            count += next.count;
            items.extend(waiting.items.pop_front().map(|held| held.item));
        }
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
        let more = waiting.items.len() >= self.bounds.batch || waiting.bytes >= self.bounds.batch_bytes;
        self.count().queued.fetch_sub(count, Ordering::Relaxed);
        (items, more)
    }

    /// Takes nothing any more. What is still in it is dropped, and counted.
    pub fn close(&self) {
        let mut waiting = self.waiting();
        waiting.closed = true;
        let left: u64 = waiting.items.iter().map(|held| held.count).sum();
        (waiting.items, waiting.bytes) = (VecDeque::new(), 0);
        self.count().queued.fetch_sub(left, Ordering::Relaxed);
        add(&self.count().dropped, left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Thing(usize);

    impl Weighed for Thing {
        fn weight(&self) -> usize {
            self.0
        }

        fn count(&self) -> u64 {
            2
        }
    }

    fn queue(bounds: Bounds) -> Queue<Thing> {
        Queue::new(bounds, Arc::default(), |counts: &Counts| &counts.traces)
    }

    #[test]
    fn what_is_too_much_is_dropped_and_counted() {
        let queue = queue(Bounds { items: 3, bytes: 10, batch: 2, batch_bytes: 100 });
        for weight in [1, 1, 8, 1, 1] {
            queue.put(Thing(weight));
        }
        assert_eq!((queue.count().queued(), queue.count().dropped()), (6, 4), "three are in it");
        assert_eq!(queue.take(), (vec![Thing(1), Thing(1)], false));
        queue.put(Thing(3));
        assert_eq!(queue.count().dropped(), 6, "these bytes are too many");
        queue.put(Thing(2));
        assert_eq!(queue.take(), (vec![Thing(8), Thing(2)], false));
        assert_eq!((queue.count().queued(), queue.take().0.len()), (0, 0));
    }

    #[test]
    fn a_batch_has_its_bytes_but_for_one_that_is_larger() {
        let queue = queue(Bounds { items: 10, bytes: 1000, batch: 3, batch_bytes: 10 });
        for weight in [6, 6, 50, 1, 1, 1, 1] {
            queue.put(Thing(weight));
        }
        let sizes = std::iter::from_fn(|| {
            let (items, more) = queue.take();
            (!items.is_empty()).then_some((items.len(), more))
        });
        assert_eq!(sizes.collect::<Vec<_>>(), [(1, true), (1, true), (1, true), (3, false), (1, false)]);
    }

    #[test]
    fn a_closed_queue_has_dropped_what_it_held() {
        let queue = queue(Bounds { items: 10, bytes: 10, batch: 3, batch_bytes: 10 });
        queue.put(Thing(1));
        queue.close();
        queue.put(Thing(1));
        assert_eq!((queue.count().queued(), queue.count().dropped()), (0, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_batch_ends_the_wait_and_less_does_not() {
        let queue = queue(Bounds { items: 10, bytes: 10, batch: 2, batch_bytes: 10 });
        let (stop, hour) = (CancellationToken::new(), Duration::from_secs(3600));
        let begin = tokio::time::Instant::now();
        queue.put(Thing(1));
        queue.wait(hour, &stop).await;
        assert_eq!(begin.elapsed(), hour);
        queue.put(Thing(1));
        queue.wait(hour, &stop).await;
        stop.cancel();
        queue.wait(hour, &stop).await;
        assert_eq!(begin.elapsed(), hour);
    }
}
