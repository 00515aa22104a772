//! Answers whole from a task of its own, which then computes for ever.

use wasip3::wit_bindgen::{StreamWriter, spawn_local};

pub fn run(mut writer: StreamWriter<u8>) {
    spawn_local(async move {
        writer.write_all(b"answered".to_vec()).await;
        drop(writer);
        wasip3::clocks::monotonic_clock::wait_for(50_000_000).await;
        loop {
            std::hint::black_box(0);
        }
    });
}
