//! Turns texts into vectors that are close where the meanings are, with all-MiniLM-L6-v2, and ranks documents
//! by how close they are to a query.
//!
//! `POST /embed` takes `{"texts": [...]}` and answers `{"embeddings": [[...], ...]}`: 384 numbers for each
//! text, of length 1. `POST /search` takes `{"query": "...", "documents": [...], "top": 3}` and answers the
//! closest documents, best first: `[{"index", "score", "text"}, ...]`, the score a cosine.
//!
//! What a text's tokens are, that only the first 256 count, and how the tokens become one vector follow
//! `sentence-transformers`; `expected.json` holds this function to it.
//!
//! | file | what |
//! | --- | --- |
//! | `tokenizer.rs`, `vocabulary.rs` | from a text to the model's tokens |
//! | `embedding.rs` | batches of them through the model, which gives the vectors |

mod embedding;
mod tokenizer;
mod vocabulary;

use serde::{Deserialize, Serialize};
use weir_sdk::{Error, Request, Response, function};

use crate::embedding::embed;

/// The most texts of a request, and documents of a search.
const MAX_TEXTS: usize = 64;

/// The most bytes of a text. What is beyond the first 256 tokens does not count, so longer ones are a mistake.
const MAX_TEXT_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Texts {
    texts: Vec<String>,
}

#[derive(Serialize)]
struct Embeddings {
    embeddings: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    query: String,
    documents: Vec<String>,
    /// How many documents to answer; all without it.
    top: Option<usize>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Hit<'a> {
    /// The document's place in the request, from 0.
    index: usize,
    /// The cosine of the angle between the query and the document: -1 to 1.
    score: f32,
    text: &'a str,
}

#[function]
fn handle(request: Request) -> Result<Response, Error> {
    match request.path() {
        "/embed" => {
            request.require_method("POST")?;
            let Texts { texts } = request.json()?;
            check("texts", &texts)?;
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            Response::json(&Embeddings { embeddings: embed(&texts)? })
        }
        "/search" => {
            request.require_method("POST")?;
            let search: Search = request.json()?;
            Response::json(&find(&search)?)
        }
        path => Err(Error::not_found(format!("there is no `{path}`, only `/embed` and `/search`"))),
    }
}

fn find(search: &Search) -> Result<Vec<Hit<'_>>, Error> {
    check("query", std::slice::from_ref(&search.query))?;
    check("documents", &search.documents)?;
    if search.top == Some(0) {
        return Err(Error::new(400, "invalid_top", "`top` is 0: leave it out, or ask for 1 or more"));
    }
    let mut texts = vec![search.query.as_str()];
    texts.extend(search.documents.iter().map(String::as_str));
    let embeddings = embed(&texts)?;
    let mut hits = ranked(&embeddings, &search.documents);
    hits.truncate(search.top.unwrap_or(usize::MAX));
    Ok(hits)
}

/// The documents by how close their embeddings, which follow the query's, are to it; of equals, the first
/// first.
fn ranked<'a>(embeddings: &[Vec<f32>], documents: &'a [String]) -> Vec<Hit<'a>> {
    let Some((query, embeddings)) = embeddings.split_first() else { return vec![] };
    let cosine = |embedding: &[f32]| query.iter().zip(embedding).map(|(a, b)| a * b).sum();
    let hits = documents.iter().zip(embeddings).enumerate();
    let mut hits: Vec<Hit<'_>> =
        hits.map(|(index, (text, embedding))| Hit { index, score: cosine(embedding), text }).collect();
    hits.sort_by(|a, b| b.score.total_cmp(&a.score));
    hits
}

/// 400 `too_many_texts` or `text_too_long`, with the field's name.
fn check(field: &str, texts: &[String]) -> Result<(), Error> {
    if texts.len() > MAX_TEXTS {
        let detail =
            format!("`{field}` has {} texts, and may have {MAX_TEXTS}: send several requests", texts.len());
        return Err(Error::new(400, "too_many_texts", detail));
    }
    for (index, text) in texts.iter().enumerate() {
        if text.len() > MAX_TEXT_BYTES {
            let detail = format!(
                "text {index} of `{field}` has {} bytes, and may have {MAX_TEXT_BYTES}: cut it into parts",
                text.len()
            );
            return Err(Error::new(400, "text_too_long", detail));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &str, body: &str) -> (u16, String) {
        let error = handle(Request::new("POST", path, body)).unwrap_err();
        (error.status(), error.code().to_owned())
    }

    #[test]
    fn what_is_wrong_with_a_request_is_said_before_the_model_is_asked() {
        let refused = |status, code: &str| (status, code.to_owned());
        assert_eq!(refusal("/", "{}"), refused(404, "not_found"));
        assert_eq!(refusal("/embed", "{\"texts\": [1]}"), refused(400, "invalid_json"));
        assert_eq!(refusal("/embed", "{\"texts\": [], \"text\": \"\"}"), refused(400, "invalid_json"));
        let many = serde_json(vec!["a".to_owned(); MAX_TEXTS + 1]);
        assert_eq!(refusal("/embed", &format!("{{\"texts\": {many}}}")), refused(400, "too_many_texts"));
        let long = serde_json(vec!["a".repeat(MAX_TEXT_BYTES + 1)]);
        assert_eq!(refusal("/embed", &format!("{{\"texts\": {long}}}")), refused(400, "text_too_long"));
        let search = |documents: &str, top: usize| {
            refusal("/search", &format!("{{\"query\": \"a\", \"documents\": {documents}, \"top\": {top}}}"))
        };
        assert_eq!(search(&many, 1), refused(400, "too_many_texts"));
        assert_eq!(search("[]", 0), refused(400, "invalid_top"));
        let error = handle(Request::new("GET", "/embed", "")).unwrap_err();
        assert_eq!((error.status(), error.code()), (405, "method_not_allowed"));
    }

    fn serde_json(texts: Vec<String>) -> String {
        weir_sdk::serde_json::to_string(&texts).unwrap()
    }

    #[test]
    fn texts_up_to_the_bounds_are_taken() {
        assert!(check("texts", &vec!["a".repeat(MAX_TEXT_BYTES); MAX_TEXTS]).is_ok());
    }

    #[test]
    fn documents_are_ranked_best_first_and_equals_in_their_order() {
        let embeddings = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.0], [0.6, 0.8]].map(Vec::from);
        let documents = ["far", "near", "same", "near too"].map(String::from);
        let hits = ranked(&embeddings, &documents);
        let order: Vec<(usize, f32)> = hits.iter().map(|hit| (hit.index, hit.score)).collect();
        assert_eq!(order, [(2, 1.0), (1, 0.6), (3, 0.6), (0, 0.0)]);
        assert_eq!(hits.first().map(|hit| hit.text), Some("same"));
    }
}
