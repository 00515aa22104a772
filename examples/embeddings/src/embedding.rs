//! From texts to their embeddings: batches of about the same length, padded and run one after the other.

use weir_sdk::{Error, Model, Tensor};

use crate::tokenizer::tokenize;
use crate::vocabulary::PAD;

/// The numbers in an embedding.
pub const WIDTH: usize = 384;

/// The most tokens of a batch, padding included: others wait while an operator runs.
const BATCH_TOKENS: usize = 1024;

/// The embeddings of `texts`, in their order: each `WIDTH` numbers, of length 1.
pub fn embed(texts: &[&str]) -> Result<Vec<Vec<f32>>, Error> {
    let tokens: Vec<Vec<i64>> = texts.iter().map(|text| tokenize(text)).collect();
    let model = Model::open("minilm")?;
    let mut embeddings = vec![];
    for batch in batches(&tokens) {
        let inputs: Vec<&[i64]> = batch.iter().map(|(_, tokens)| *tokens).collect();
        let outputs = run(&model, &inputs)?;
        embeddings.extend(batch.iter().map(|(position, _)| *position).zip(outputs));
    }
    embeddings.sort_unstable_by_key(|(position, _)| *position);
    Ok(embeddings.into_iter().map(|(_, embedding)| embedding).collect())
}

/// The texts' tokens with their positions, shortest first, in batches of at most [`BATCH_TOKENS`].
fn batches(tokens: &[Vec<i64>]) -> Vec<Vec<(usize, &[i64])>> {
    let mut sorted: Vec<(usize, &[i64])> = tokens.iter().map(Vec::as_slice).enumerate().collect();
    sorted.sort_by_key(|(_, tokens)| tokens.len());
    let mut batches: Vec<Vec<(usize, &[i64])>> = vec![];
    for next in sorted {
        match batches.last_mut() {
            Some(batch) if (batch.len() + 1) * next.1.len() <= BATCH_TOKENS => batch.push(next),
            _ => batches.push(vec![next]),
        }
    }
    batches
}

/// Asks the model: `input_ids` and `attention_mask` i64 [batch, sequence] in, `embedding` f32 [batch, 384] out.
fn run(model: &Model, batch: &[&[i64]]) -> Result<Vec<Vec<f32>>, Error> {
    let length = batch.iter().map(|tokens| tokens.len()).max().unwrap_or(0);
    let (mut ids, mut mask) = (vec![], vec![]);
    for tokens in batch {
        let padding = length - tokens.len();
        ids.extend(tokens.iter().copied().chain(std::iter::repeat_n(PAD, padding)));
        mask.extend(std::iter::repeat_n(1, tokens.len()).chain(std::iter::repeat_n(0, padding)));
    }
    let shape = [batch.len(), length];
    let inputs =
        [("input_ids", Tensor::new(&shape, &ids)?), ("attention_mask", Tensor::new::<i64>(&shape, &mask)?)];
    let outputs = model.run(inputs)?;
    let output = outputs.get("embedding")?;
    if output.shape() != [batch.len(), WIDTH] {
        let detail = format!("the model answers {:?}, not [{}, {WIDTH}]", output.shape(), batch.len());
        return Err(Error::new(500, "model_mismatch", detail));
    }
    Ok(output.to_vec::<f32>()?.chunks_exact(WIDTH).map(<[f32]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_in_one_batch_and_no_batch_is_too_large() {
        let tokens: Vec<Vec<i64>> = (0..64).map(|index| vec![7; 2 + index * 67 % 255]).collect();
        let batches = batches(&tokens);
        let mut positions: Vec<usize> = batches.iter().flatten().map(|(position, _)| *position).collect();
        positions.sort_unstable();
        assert_eq!(positions, (0..64).collect::<Vec<_>>());
        for batch in &batches {
            let longest = batch.iter().map(|(_, tokens)| tokens.len()).max().unwrap();
            assert!(batch.len() * longest <= BATCH_TOKENS);
            assert!(batch.iter().all(|(position, given)| *given == tokens[*position]));
        }
        assert!(batches.len() < 20, "{} batches", batches.len());
    }
}
