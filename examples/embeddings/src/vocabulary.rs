//! The model's vocabulary: tokens that start a word, and tokens that continue one (`##` in the model's own
//! list). The tables are made by `build.rs` from the list that lies beside the model.

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// What is a token wherever it stands in a text, written just so.
pub const SPECIAL: [(&str, i64); 5] =
    [("[PAD]", PAD), ("[UNK]", UNK), ("[CLS]", CLS), ("[SEP]", SEP), ("[MASK]", MASK)];

/// The ids of the longest tokens, from left to right, that `word` is made of; `None` if it is not.
pub fn pieces(word: &str) -> Option<Vec<i64>> {
    let (mut ids, mut rest, mut table) = (vec![], word, &STARTS[..]);
    while !rest.is_empty() {
        let (id, after) = longest(table, rest)?;
        ids.push(id);
        rest = after;
        table = &CONTINUATIONS;
    }
    Some(ids)
}

/// The longest token of the table that `text` begins with, and what follows it.
fn longest<'a>(table: &[(&str, u16)], text: &'a str) -> Option<(i64, &'a str)> {
    text.char_indices().rev().find_map(|(start, last)| {
        let (token, after) = text.split_at_checked(start + last.len_utf8())?;
        let found = table.binary_search_by(|(known, _)| (*known).cmp(token)).ok()?;
        table.get(found).map(|(_, id)| (i64::from(*id), after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_its_longest_pieces() {
        assert_eq!(pieces("water"), Some(vec![2300]));
        // "windows" and "##ill", though "wind" is a token too.
        assert_eq!(pieces("windowsill"), Some(vec![3645, 8591]));
        assert_eq!(pieces("\u{1f389}"), None);
        assert_eq!(pieces("water\u{1f389}"), None);
    }
}
