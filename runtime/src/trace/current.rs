//! The span that this task works for, so that what is logged on its behalf can say so.

use super::context::{Context, Link};

tokio::task_local! {
    static CURRENT: Link;
}

/// Runs a future as part of a call.
pub fn within<F: Future>(context: &Context, future: F) -> impl Future<Output = F::Output> + use<F> {
    CURRENT.scope(context.link(), future)
}

/// Does something as part of a call.
pub fn during<T>(call: Link, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(call, work)
}

/// The span that the task works for now, if it is for one.
pub fn current() -> Option<Link> {
    CURRENT.try_with(|link| *link).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_runs_within_a_call_knows_it_and_nothing_else_does() {
        let call = Context::root(|_| true);
        let inner = within(&call, async {
            tokio::task::yield_now().await;
            (current(), tokio::spawn(async { current() }).await.unwrap())
        });
        assert_eq!(inner.await, (Some(call.link()), None));
        assert_eq!(during(call.link(), current), Some(call.link()));
        assert_eq!(current(), None);
    }
}
