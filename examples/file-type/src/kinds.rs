//! The content types, and what each class of the model means. The tables are made by `build.rs` from the
//! description that lies beside the model.

use serde::Serialize;

/// A content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Kind {
    pub label: &'static str,
    pub mime_type: &'static str,
    pub group: &'static str,
    pub description: &'static str,
    pub is_text: bool,
}

/// One of the model's classes: a label, the kind of file that it stands for, and the least score at which it
/// is believed.
pub struct Class {
    #[cfg_attr(not(test), expect(dead_code, reason = "names the class in tests and to readers"))]
    pub label: &'static str,
    pub threshold: f64,
    pub kind: Kind,
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// The kind of file that these scores, one per class, speak for, and the score of the best. A best below its
/// threshold is believed only as to whether the file is text.
pub fn decide(scores: &[f32]) -> (Kind, f32) {
    let mut best = (&CLASSES[0], f32::NEG_INFINITY);
    for (class, &score) in CLASSES.iter().zip(scores) {
        if score > best.1 {
            best = (class, score);
        }
    }
    let (class, score) = best;
    let kind = if f64::from(score) >= class.threshold {
        class.kind
    } else if class.kind.is_text {
        TEXT
    } else {
        UNKNOWN
    };
    (kind, score)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(label: &str, score: f32) -> &'static str {
        let scores: Vec<f32> =
            CLASSES.iter().map(|class| if class.label == label { score } else { 0.0 }).collect();
        decide(&scores).0.label
    }

    #[test]
    fn an_unsure_model_is_believed_only_as_to_text() {
        assert_eq!(decided("python", 0.5), "python");
        assert_eq!(decided("python", 0.49), "txt");
        assert_eq!(decided("png", 0.49), "unknown");
        assert_eq!(decided("markdown", 0.74), "txt");
        assert_eq!(decided("markdown", 0.76), "markdown");
    }

    #[test]
    fn classes_of_random_content_have_other_names() {
        assert_eq!(decided("randombytes", 0.9), "unknown");
        assert_eq!(decided("randomtxt", 0.9), "txt");
    }
}
