//! Futures over the host's pollables: each waiting future has one, and `block_on` waits for all of them in one call of the host.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::bindings::wasi::io::poll::{Pollable, poll};
use crate::log;

/// What a future waits for. Dropping it takes the pollable back from the host, which has to happen before what it is of goes.
#[derive(Debug, Default)]
pub struct Readiness(Option<Rc<Waiting>>);

#[derive(Debug)]
struct Waiting {
    pollable: Pollable,
    waker: RefCell<Waker>,
}

thread_local! {
    /// All that is waited for. A future that is dropped leaves a dead entry, which the next wait removes.
    static WAITING: RefCell<Vec<Weak<Waiting>>> = const { RefCell::new(Vec::new()) };
}

impl Readiness {
    /// Ready once the pollable is that `subscribe` made when this was first asked; then the next time asks for a new one.
    pub fn poll(&mut self, cx: &mut Context<'_>, subscribe: impl FnOnce() -> Pollable) -> Poll<()> {
        if let Some(waiting) = &self.0 {
            if waiting.pollable.ready() {
                self.0 = None;
                return Poll::Ready(());
            }
            waiting.waker.borrow_mut().clone_from(cx.waker());
            return Poll::Pending;
        }
        let waiting = Rc::new(Waiting { pollable: subscribe(), waker: RefCell::new(cx.waker().clone()) });
        WAITING.with_borrow_mut(|all| all.push(Rc::downgrade(&waiting)));
        self.0 = Some(waiting);
        Poll::Pending
    }
}

/// Runs `future` to its end. Where it waits for nothing of the host, nothing could ever wake it: the sandbox ends, with a line in
/// the log.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Nobody;
    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }
    let waker = Waker::from(Arc::new(Nobody));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        let waiting: Vec<Rc<Waiting>> = WAITING.with_borrow_mut(|all| {
            all.retain(|entry| entry.strong_count() > 0);
            all.iter().filter_map(Weak::upgrade).collect()
        });
        if waiting.is_empty() {
            log::error!("the function waits for something that no host can wake it for");
            std::process::abort();
        }
        let pollables: Vec<&Pollable> = waiting.iter().map(|entry| &entry.pollable).collect();
        for index in poll(&pollables) {
            if let Some(entry) = waiting.get(index as usize) {
                entry.waker.borrow().wake_by_ref();
            }
        }
    }
}
