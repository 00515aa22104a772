//! Waits in more and more tasks at once.

use wasip3::clocks::monotonic_clock::wait_for;
use wasip3::wit_bindgen::{StreamWriter, spawn_local};

pub fn run(writer: StreamWriter<u8>) {
    spawn_local(async move {
        loop {
            for _ in 0..1000 {
                spawn_local(wait_for(3_600_000_000_000));
            }
            wait_for(1_000_000).await;
            std::hint::black_box(&writer);
        }
    });
}
