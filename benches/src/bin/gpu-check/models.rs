//! The models that are looked at, and what they read.

use std::path::Path;

use weir_gpu::{Dtype, Tensor};

use crate::graphs::{self, Encoder};

#[derive(Debug, Clone, Copy)]
enum Reads {
    Floats,
    /// Numbers of tokens: 0 to 256.
    Tokens,
}

/// A model with one input.
pub struct Case {
    pub name: &'static str,
    pub bytes: Vec<u8>,
    reads: Reads,
    /// The shape of a row of its input.
    row: Vec<usize>,
}

/// A model that `make models` fetches.
pub struct File {
    pub name: &'static str,
    path: &'static str,
    reads: Reads,
    row: &'static [usize],
    /// Whether it may be missing.
    pub is_optional: bool,
}

pub const MAGIKA: File = File {
    name: "magika",
    path: "magika/model.onnx",
    reads: Reads::Tokens,
    row: &[2048],
    is_optional: false,
};

pub const RESNET50: File = image("light/resnet50", "light/resnet50.onnx", &[3, 224, 224], false);

pub const FILES: [File; 6] = [
    MAGIKA,
    RESNET50,
    image("light/squeezenet", "light/squeezenet.onnx", &[3, 224, 224], false),
    image("ppocr/cls", "ppocr/cls.onnx", &[3, 48, 192], true),
    image("ppocr/rec", "ppocr/rec.onnx", &[3, 48, 64], true),
    image("ppocr/det", "ppocr/det.onnx", &[3, 64, 64], true),
];

/// Small enough for a CPU.
pub const SMALL: Encoder = Encoder { tokens: 32, width: 128, heads: 4, layers: 2 };

/// Work for a GPU: about 100 MiB of weights.
pub const LARGE: Encoder = Encoder { tokens: 128, width: 1024, heads: 16, layers: 2 };

const fn image(name: &'static str, path: &'static str, row: &'static [usize], is_optional: bool) -> File {
    File { name, path, reads: Reads::Floats, row, is_optional }
}

impl File {
    /// # Errors
    /// That it is not there: a sentence.
    pub fn case(&self, folder: &Path) -> anyhow::Result<Case> {
        let Self { name, path, reads, row, .. } = *self;
        let bytes = std::fs::read(folder.join(path))
            .map_err(|error| anyhow::anyhow!("{path} is not in the folder of models: {error}"))?;
        Ok(Case { name, bytes, reads, row: row.to_vec() })
    }
}

/// `layers` products with `width` by `width` weights, each followed by a ReLU.
pub fn perceptron(width: usize, layers: usize) -> anyhow::Result<Case> {
    let bytes = weir_tests::onnx::perceptron(i64::try_from(width)?, layers, 1);
    Ok(Case { name: "perceptron", bytes, reads: Reads::Floats, row: vec![width] })
}

pub fn encoder(size: Encoder) -> Case {
    let row = vec![size.tokens, size.width];
    Case { name: "transformer", bytes: graphs::encoder(size), reads: Reads::Floats, row }
}

/// Makes each row of one element `width` times as large in between.
pub fn widen(width: usize) -> Case {
    Case { name: "widen", bytes: graphs::widen(width), reads: Reads::Floats, row: vec![1] }
}

impl Case {
    /// `rows` rows that a seed makes: from the same one the same again.
    pub fn input(&self, rows: usize, seed: u64) -> anyhow::Result<Tensor> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut shape = vec![rows];
        shape.extend(&self.row);
        let count: usize = shape.iter().product();
        let (dtype, data): (Dtype, Vec<u8>) = match self.reads {
            Reads::Floats => (Dtype::F32, (0..count).flat_map(|_| rng.f32().to_le_bytes()).collect()),
            Reads::Tokens => (Dtype::I32, (0..count).flat_map(|_| rng.i32(0..257).to_le_bytes()).collect()),
        };
        Ok(Tensor::new(dtype, shape, data.into())?)
    }
}
