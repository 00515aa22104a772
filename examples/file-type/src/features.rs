//! What the model is fed: `HEAD_TOKENS` bytes from the start of the first block, after its leading white
//! space, then `TAIL_TOKENS` bytes up to the end of the last block, before its trailing white space. Where
//! there are too few bytes, the padding token fills the end of the first part and the start of the second.

use crate::ends::Ends;
use crate::kinds::{EMPTY, HEAD_TOKENS, Kind, MIN_BYTES, PADDING, TAIL_TOKENS, TEXT, UNKNOWN};

/// What there is to see in a file.
pub enum Reading {
    /// Too little for the model: the answer comes from the bytes alone.
    Known(Kind),
    /// The model's input.
    Tokens(Vec<i32>),
}

pub fn read(ends: &Ends) -> Reading {
    if ends.size() == 0 {
        return Reading::Known(EMPTY);
    }
    let head = trim_start(ends.head());
    if ends.size() < MIN_BYTES as u64 || head.len() < MIN_BYTES {
        // Judged by the first block as it is, even if the block ends within a character.
        let text = std::str::from_utf8(ends.head()).is_ok();
        return Reading::Known(if text { TEXT } else { UNKNOWN });
    }
    let tail = trim_end(ends.tail());
    let mut tokens = vec![PADDING; HEAD_TOKENS + TAIL_TOKENS];
    for (token, byte) in tokens[..HEAD_TOKENS].iter_mut().zip(head) {
        *token = i32::from(*byte);
    }
    for (token, byte) in tokens[HEAD_TOKENS..].iter_mut().rev().zip(tail.iter().rev()) {
        *token = i32::from(*byte);
    }
    Reading::Tokens(tokens)
}

/// White space as the model was trained with: ASCII's six, vertical tab among them.
fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn trim_start(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| !is_space(byte)).unwrap_or(bytes.len());
    &bytes[start..]
}

fn trim_end(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| !is_space(byte)).map_or(0, |last| last + 1);
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use serde::Deserialize;
    use weir_sdk::serde_json;

    use super::*;
    use crate::kinds::{CLASSES, decide};

    /// An entry of `expected.json`, which `scripts/magika-reference.py` writes.
    #[derive(Deserialize)]
    struct Expected {
        label: String,
        mime_type: String,
        group: String,
        description: String,
        is_text: bool,
        score: f32,
        model: Option<ModelExpected>,
    }

    #[derive(Deserialize)]
    struct ModelExpected {
        label: String,
        tokens_fnv1a: String,
    }

    /// FNV-1a, 64 bits, over the tokens as little-endian 16-bit numbers.
    fn fnv1a(tokens: &[i32]) -> String {
        let bytes = tokens.iter().flat_map(|token| (*token as u16).to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }

    #[test]
    fn every_sample_reads_as_the_reference_reads_it() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let expected = std::fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: BTreeMap<String, Expected> = serde_json::from_str(&expected).unwrap();
        assert_eq!(expected.len(), std::fs::read_dir(folder.join("samples")).unwrap().count());
        for (name, expected) in expected {
            let mut ends = Ends::default();
            ends.push(&std::fs::read(folder.join("samples").join(&name)).unwrap());
            let kind = match (read(&ends), expected.model) {
                (Reading::Known(kind), None) => kind,
                (Reading::Tokens(tokens), Some(model)) => {
                    assert_eq!(fnv1a(&tokens), model.tokens_fnv1a, "{name}");
                    // The reference's scores, as far as they are known: the one that the model chose.
                    let score_of = |label| if label == model.label { expected.score } else { 0.0 };
                    let scores: Vec<f32> = CLASSES.iter().map(|class| score_of(class.label)).collect();
                    decide(&scores).0
                }
                (_, model) => {
                    panic!("{name}: the model is asked here or in the reference only: {}", model.is_some())
                }
            };
            assert_eq!(kind.label, expected.label, "{name}");
            assert_eq!(kind.mime_type, expected.mime_type, "{name}");
            assert_eq!(kind.group, expected.group, "{name}");
            assert_eq!(kind.description, expected.description, "{name}");
            assert_eq!(kind.is_text, expected.is_text, "{name}");
        }
    }
}
