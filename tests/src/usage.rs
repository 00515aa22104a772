//! The usage log of a data directory, read by its documented layout (docs/metering.md) and by none of the server's code.

use std::path::Path;

use serde_json::Value;

/// All records, in the order in which they were written. The last part of a frame is left out, if it is cut off.
pub fn records(data: &Path) -> Vec<Value> {
    let folder = data.join("usage");
    let mut segments: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.retain(|path| path.extension().is_some_and(|ending| ending == "log"));
    segments.sort();
    let mut records = vec![];
    for segment in segments {
        let bytes = std::fs::read(segment).unwrap();
        let mut rest = &bytes[..];
        let mut is_first = true;
        while rest.len() >= 8 {
            let length = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
            let Some(payload) = rest.get(8..8 + length) else { break };
            let frame: Value = serde_json::from_slice(payload).unwrap();
            if !std::mem::take(&mut is_first) {
                records.push(frame["record"].clone());
            }
            rest = &rest[8 + length..];
        }
    }
    records
}
