//! Writes an answer for as long as anybody takes it.

use wasip3::wit_bindgen::{StreamWriter, spawn_local};

pub fn run(mut writer: StreamWriter<u8>) {
    spawn_local(async move { while writer.write_all(vec![b'x'; 64 << 10]).await.is_empty() {} });
}
