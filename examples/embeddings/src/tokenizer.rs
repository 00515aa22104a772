//! From a text to the model's tokens, as BERT has it: cleaned, in lower case, without accents, cut at white
//! space and around punctuation and ideographs, and each word into pieces that the vocabulary has.

use unicode_categories::UnicodeCategories;
use unicode_normalization::UnicodeNormalization;

use crate::vocabulary::{CLS, SEP, SPECIAL, UNK, pieces};

/// What the model was trained to take at most, `[CLS]` and `[SEP]` included. What is beyond is not looked at.
pub const MAX_TOKENS: usize = 256;

/// A longer word is unknown without a look into the vocabulary.
const MAX_WORD_CHARS: usize = 100;

/// The ids of a text's tokens: at least two, at most [`MAX_TOKENS`].
pub fn tokenize(text: &str) -> Vec<i64> {
    let mut tokens = Tokens { ids: vec![CLS] };
    let mut rest = text;
    while !tokens.full() {
        let (plain, special) = split_at_special(rest);
        tokens.push_plain(plain);
        let Some((id, after)) = special else { break };
        tokens.ids.push(id);
        rest = after;
    }
    tokens.ids.truncate(MAX_TOKENS - 1);
    tokens.ids.push(SEP);
    tokens.ids
}

/// The text up to its first special token, that token's id, and what follows it.
fn split_at_special(text: &str) -> (&str, Option<(i64, &str)>) {
    let found = text.match_indices('[').find_map(|(start, _)| {
        let (before, after) = text.split_at_checked(start)?;
        SPECIAL.iter().find_map(|(token, id)| Some((before, (*id, after.strip_prefix(token)?))))
    });
    found.map_or((text, None), |(before, special)| (before, Some(special)))
}

struct Tokens {
    ids: Vec<i64>,
}

impl Tokens {
    /// Whether there is no room but for `[SEP]`.
    fn full(&self) -> bool {
        self.ids.len() >= MAX_TOKENS - 1
    }

    fn push_plain(&mut self, text: &str) {
        let mut word = Word::default();
        for character in normalized(text) {
            if self.full() {
                return;
            }
            if character.is_whitespace() {
                self.push_word(&mut word);
            } else if character.is_ascii_punctuation() || character.is_punctuation() {
                self.push_word(&mut word);
                word.push(character);
                self.push_word(&mut word);
            } else {
                word.push(character);
            }
        }
        self.push_word(&mut word);
    }

    /// Adds the word's tokens and empties it.
    fn push_word(&mut self, word: &mut Word) {
        match pieces(&word.text) {
            Some(ids) if word.chars <= MAX_WORD_CHARS => self.ids.extend(ids),
            _ => self.ids.push(UNK),
        }
        *word = Word::default();
    }
}

/// A word as it is read: it is not kept beyond the length at which it is unknown anyway.
#[derive(Default)]
struct Word {
    text: String,
    chars: usize,
}

impl Word {
    fn push(&mut self, character: char) {
        if self.chars <= MAX_WORD_CHARS {
            self.text.push(character);
            self.chars += 1;
        }
    }
}

/// The text as the model knows texts: nothing invisible, any white space a space, ideographs words of their
/// own, no accents, lower case.
fn normalized(text: &str) -> impl Iterator<Item = char> {
    text.chars()
        .filter(|character| !is_dropped(*character))
        .flat_map(apart)
        .nfd()
        .filter(|character| !character.is_mark_nonspacing())
        .flat_map(char::to_lowercase)
}

fn is_dropped(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' => false,
        '\0' | '\u{fffd}' => true,
        _ => character.is_other(),
    }
}

/// An ideograph between spaces, or the character alone.
fn apart(character: char) -> impl Iterator<Item = char> {
    let space = is_ideograph(character).then_some(' ');
    space.into_iter().chain([character]).chain(space)
}

/// The blocks of CJK unified and compatibility ideographs that the model was trained with.
fn is_ideograph(character: char) -> bool {
    matches!(
        u32::from(character),
        0x4e00..=0x9fff
            | 0x3400..=0x4dbf
            | 0x20000..=0x2a6df
            | 0x2a700..=0x2b73f
            | 0x2b740..=0x2b81f
            | 0x2b920..=0x2ceaf
            | 0xf900..=0xfaff
            | 0x2f800..=0x2fa1f
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde::Deserialize;
    use weir_sdk::serde_json;

    use super::*;

    /// An entry of `expected.json`, which `scripts/minilm-reference.py` writes.
    #[derive(Deserialize)]
    struct Expected {
        text: String,
        tokens: Vec<i64>,
    }

    #[test]
    fn every_sentence_is_cut_as_the_reference_cuts_it() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected.json");
        let expected: Vec<Expected> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(expected.len(), 50);
        for Expected { text, tokens } in expected {
            assert_eq!(tokenize(&text), tokens, "{text:?}");
        }
    }

    #[test]
    fn the_end_of_a_long_text_does_not_matter() {
        let long = "river ".repeat(MAX_TOKENS);
        let tokens = tokenize(&long);
        assert_eq!((tokens.len(), tokens.last()), (MAX_TOKENS, Some(&SEP)));
        assert_eq!(tokenize(&format!("{long} [SEP] bank")), tokens);
    }

    #[test]
    fn special_tokens_are_found_in_order() {
        assert_eq!(tokenize("[[MASK]"), [CLS, 1031, crate::vocabulary::MASK, SEP]);
        assert_eq!(tokenize("[UNK][PAD]"), [CLS, UNK, crate::vocabulary::PAD, SEP]);
    }
}
