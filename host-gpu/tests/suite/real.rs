//! Models that tenants really bring stay welcome.

use std::path::Path;

use weir_gpu::{Dtype, Format, ModelLimits, Report};

fn look(model: &str, shapes: Option<&[Vec<usize>]>) -> Report {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models").join(model);
    let bytes = std::fs::read(path).unwrap();
    let report = weir_gpu::examine(Format::Onnx, &bytes, shapes, &ModelLimits::default()).unwrap();
    println!("{model} {shapes:?}: {} bytes, {} multiply-adds", report.memory, report.operator_cost);
    report
}

#[test]
fn file_types_and_printed_text() {
    let report = look("magika/model.onnx", None);
    assert!(report.memory > 1 << 20, "the weights alone");
    assert!(report.signature.inputs.iter().all(|input| input.dtype == Dtype::I32));
    look("ppocr/det.onnx", None);
    look("ppocr/rec.onnx", None);
    look("ppocr/cls.onnx", None);
    look("ppocr/det.onnx", Some(&[vec![1, 3, 640, 640]]));
    look("ppocr/rec.onnx", Some(&[vec![1, 3, 48, 320]]));
    look("ppocr/rec.onnx", Some(&[vec![6, 3, 48, 320]]));
    look("ppocr/cls.onnx", Some(&[vec![1, 3, 48, 192]]));
}
