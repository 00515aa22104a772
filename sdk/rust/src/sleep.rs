use std::future::poll_fn;
use std::time::Duration;

use crate::host::Timer;

/// Waits, in async code, while what else is waited for goes on. The call's own limits go on too.
pub async fn sleep(duration: Duration) {
    let mut timer = Timer::new(duration);
    poll_fn(|cx| timer.poll(cx)).await;
}
