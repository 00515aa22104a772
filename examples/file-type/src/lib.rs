//! Tells what kind of file the body of a request is, with Google's Magika model (`standard_v3_3`): send any
//! file with POST, and read its label, MIME type, group, description, whether it is text, and how sure the
//! model is.
//!
//! The model looks at the first and last block of a file only, so the body streams through and memory stays
//! constant, however large the file. What the model is fed and how its answer is read follow the Python
//! package `magika` 1.0.3 in its default mode (high confidence); `samples/` and `expected.json` hold this
//! function to that package's answers.
//!
//! | file | what |
//! | --- | --- |
//! | `ends.rs` | the first and last block of a body that streams by |
//! | `features.rs` | the model's input, or the answer where the model is not asked |
//! | `kinds.rs` | content types, and what each class of the model means |

mod ends;
mod features;
mod kinds;

use serde::Serialize;
use weir_sdk::{Error, Model, Request, Response, Tensor, function};

use crate::ends::Ends;
use crate::features::{Reading, read};
use crate::kinds::{CLASSES, HEAD_TOKENS, Kind, TAIL_TOKENS, decide};

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    kind: Kind,
    /// The model's confidence in its first choice, 0 to 1; 1 where the model was not asked.
    score: f32,
}

#[function]
fn handle(request: Request) -> Result<Response, Error> {
    request.require_method("POST")?;
    let mut ends = Ends::default();
    for chunk in request.into_chunks()? {
        ends.push(&chunk?);
    }
    let (kind, score) = match read(&ends) {
        Reading::Known(kind) => (kind, 1.0),
        Reading::Tokens(tokens) => classify(&tokens)?,
    };
    Response::json(&Answer { kind, score })
}

/// Asks the model: `bytes` i32 [1, 2048] in, `target_label` f32 [1, classes] (probabilities) out.
fn classify(tokens: &[i32]) -> Result<(Kind, f32), Error> {
    let input = Tensor::new(&[1, HEAD_TOKENS + TAIL_TOKENS], tokens)?;
    let outputs = Model::open("magika")?.run([("bytes", input)])?;
    let scores: Vec<f32> = outputs.get("target_label")?.to_vec()?;
    if scores.len() != CLASSES.len() {
        let detail = format!("the model has {} classes, this function knows {}", scores.len(), CLASSES.len());
        return Err(Error::new(500, "model_mismatch", detail));
    }
    Ok(decide(&scores))
}
