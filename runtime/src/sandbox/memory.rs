//! Memory that sandboxes cost: their own, and what the host keeps for them, which no wasm limit sees.
//!
//! The node has one budget for all sandboxes. A sandbox takes from it what its memories and tables grow by and what
//! the host holds for it (tensors, headers, bytes on their way), and its [`Account`] gives all of it back when it ends.
//! What would pass the budget is refused, so that many sandboxes within their limits cannot use up the machine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use weir_gpu::Integral;

use crate::function::nanos;
use crate::limits::{Exceeded, Limit};
use crate::units::Size;

/// What a sandbox costs before it does anything: its stack, store and tables of handles.
const EMPTY: usize = 256 << 10;

/// The budget of all sandboxes of a node, in bytes.
#[derive(Debug)]
pub struct NodeMemory {
    most: usize,
    used: AtomicUsize,
    host: AtomicUsize,
    /// Sandboxes that wait for a call, which may leave.
    idle: AtomicUsize,
    pressed: Notify,
}

/// A sandbox that waits for a call, while it does.
pub struct Idle<'a>(&'a AtomicUsize);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl NodeMemory {
    pub fn new(most: Size) -> Self {
        let zero = || AtomicUsize::new(0);
        Self { most: most.as_usize(), used: zero(), host: zero(), idle: zero(), pressed: Notify::new() }
    }

    /// How many sandboxes wait for a call.
    pub fn idle(&self) -> usize {
        self.idle.load(Ordering::Relaxed)
    }

    pub fn count_idle(&self) -> Idle<'_> {
        self.idle.fetch_add(1, Ordering::Relaxed);
        Idle(&self.idle)
    }

    /// Makes all idle sandboxes leave.
    pub fn press(&self) {
        self.pressed.notify_waiters();
    }

    /// Ready when memory, or what goes with it, is short: an idle sandbox must end then.
    pub async fn pressed(&self) {
        self.pressed.notified().await;
    }

    /// The most that all sandboxes may have.
    pub fn most(&self) -> usize {
        self.most
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// That part of it which the host holds for sandboxes.
    pub fn host_used(&self) -> usize {
        self.host.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<(), Exceeded> {
        add(&self.used, bytes, self.most).map_err(|used| {
            self.press();
            Exceeded::new(
                Limit::NodeMemory,
                format!(
                    "the machine's sandboxes have {}, {} more would pass their most of {}",
                    shown(used),
                    shown(bytes),
                    shown(self.most)
                ),
            )
        })
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Adds to a count up to its most; what it was, if that is too much.
fn add(count: &AtomicUsize, bytes: usize, most: usize) -> Result<(), usize> {
    let more = |count: usize| count.checked_add(bytes).filter(|sum| *sum <= most);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map(|_| ())
}

fn shown(bytes: usize) -> Size {
    Size::bytes(bytes as u64)
}

/// What one sandbox has of the node's memory.
#[derive(Debug)]
pub struct Account {
    node: Arc<NodeMemory>,
    /// Its own: memories, tables, and what it costs empty.
    own: AtomicUsize,
    /// What the host holds for it.
    host: AtomicUsize,
    host_most: usize,
    /// Where the account's time begins, and all of its bytes over that.
    opened: Instant,
    held: Mutex<Integral>,
}

impl Account {
    /// An account for a new sandbox, for which the host may hold up to `host_most` bytes.
    ///
    /// # Errors
    /// When the node's budget is used up.
    pub fn open(node: Arc<NodeMemory>, host_most: usize) -> Result<Arc<Self>, Exceeded> {
        node.take(EMPTY)?;
        let (own, host) = (AtomicUsize::new(EMPTY), AtomicUsize::new(0));
        let account = Self { node, own, host, host_most, opened: Instant::now(), held: Mutex::default() };
        account.changed();
        Ok(Arc::new(account))
    }

    /// The sandbox itself grows.
    ///
    /// # Errors
    /// When that would pass the node's budget.
    pub fn grow(&self, bytes: usize) -> Result<(), Exceeded> {
        self.node.take(bytes)?;
        self.own.fetch_add(bytes, Ordering::Relaxed);
        self.changed();
        Ok(())
    }

    /// A growth did not happen.
    pub fn shrink(&self, bytes: usize) {
        self.own.fetch_sub(bytes, Ordering::Relaxed);
        self.node.give(bytes);
        self.changed();
    }

    /// Bytes × nanoseconds that the sandbox has had, itself and by the host, since this was last asked.
    pub fn take_held(&self) -> u128 {
        std::mem::take(&mut self.up_to_now().sum)
    }

    fn changed(&self) {
        drop(self.up_to_now());
    }

    /// Counts what it had up to now, and goes on with what it has.
    fn up_to_now(&self) -> MutexGuard<'_, Integral> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = self.own.load(Ordering::Relaxed).saturating_add(self.host.load(Ordering::Relaxed));
        held.set(u64::try_from(bytes).unwrap_or(u64::MAX), nanos(self.opened.elapsed()));
        held
    }

    /// The host holds bytes for the sandbox, until the answer is dropped.
    ///
    /// # Errors
    /// When that would pass the sandbox's limit or the node's budget.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held, Exceeded> {
        let mut held = Held { account: Arc::clone(self), bytes: 0 };
        held.resize(bytes)?;
        Ok(held)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // What is held outlives the sandbox at most by the job that it is an input of, and keeps the account.
        self.node.give(self.own.load(Ordering::Relaxed));
    }
}

/// Bytes that the host holds for a sandbox.
#[derive(Debug)]
pub struct Held {
    account: Arc<Account>,
    bytes: usize,
}

impl Held {
    /// Makes it so many bytes.
    ///
    /// # Errors
    /// As [`Account::hold`]; it is as it was then.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Exceeded> {
        let Account { node, host, host_most, .. } = &*self.account;
        match bytes.checked_sub(self.bytes) {
            Some(more) => {
                add(host, more, *host_most).map_err(|used| {
                    Exceeded::new(
                        Limit::HostBytes,
                        format!(
                            "the host keeps {} for the sandbox, {} more would pass its most of {}",
                            shown(used),
                            shown(more),
                            shown(*host_most)
                        ),
                    )
                })?;
                node.take(more).inspect_err(|_| {
                    host.fetch_sub(more, Ordering::Relaxed);
                })?;
                node.host.fetch_add(more, Ordering::Relaxed);
                self.account.changed();
            }
            None => self.give(self.bytes.saturating_sub(bytes)),
        }
        self.bytes = bytes;
        Ok(())
    }

    fn give(&self, bytes: usize) {
        let Account { node, host, .. } = &*self.account;
        host.fetch_sub(bytes, Ordering::Relaxed);
        node.host.fetch_sub(bytes, Ordering::Relaxed);
        node.give(bytes);
        self.account.changed();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_holds_up_to_its_limit_and_gives_all_back() {
        let node = Arc::new(NodeMemory::new(Size::bytes(2 * EMPTY as u64 + 100)));
        let account = Account::open(Arc::clone(&node), 60).unwrap();
        let first = account.hold(40).unwrap();
        let over = account.hold(21).unwrap_err();
        assert_eq!(over.limit, Limit::HostBytes);
        assert!(over.detail.contains("40 bytes") && over.detail.contains("21 bytes"), "{over}");
        let mut second = account.hold(20).unwrap();
        assert!(second.resize(21).is_err());
        second.resize(5).unwrap();
        assert_eq!((node.host_used(), node.used()), (45, EMPTY + 45));
        drop(first);
        assert!(second.resize(60).is_ok());
        drop((second, account));
        assert_eq!((node.host_used(), node.used()), (0, 0));
    }

    #[test]
    fn many_sandboxes_within_their_limits_stay_within_the_nodes() {
        let node = Arc::new(NodeMemory::new(Size::bytes(2 * EMPTY as u64 + 100)));
        let one = Account::open(Arc::clone(&node), 1000).unwrap();
        let other = Account::open(Arc::clone(&node), 1000).unwrap();
        one.grow(60).unwrap();
        assert_eq!(other.grow(41).unwrap_err().limit, Limit::NodeMemory);
        let held = other.hold(40).unwrap();
        assert_eq!(other.hold(1).unwrap_err().limit, Limit::NodeMemory);
        assert_eq!(Account::open(Arc::clone(&node), 0).unwrap_err().limit, Limit::NodeMemory);
        one.shrink(60);
        assert!(other.grow(60).is_ok());
        drop((one, other, held));
        assert_eq!((node.host_used(), node.used()), (0, 0));
    }
}
