//! What ends before the engine sees it.

use tract_onnx::pb::StringStringEntryProto;
use tract_onnx::pb::tensor_proto::DataLocation;
use weir_gpu::{Error, ModelLimits};

use crate::onnx::{DataType, Graph, branch, tensor, zeros};
use crate::{examine, refusal};

fn with(tensor: tract_onnx::pb::TensorProto) -> Vec<u8> {
    Graph::default()
        .input("x", DataType::Float, &["2"])
        .tensor(tensor)
        .node("Add", &["x", "w"], "y")
        .output("y", DataType::Float, &["2"])
        .bytes()
}

fn external(name: &str) -> tract_onnx::pb::TensorProto {
    let location = StringStringEntryProto { key: "location".to_owned(), value: "/etc/passwd".to_owned() };
    let mut external = tensor(name, DataType::Float, &[2], vec![]);
    external.data_location = Some(DataLocation::External as i32);
    external.external_data = vec![location];
    external
}

#[test]
fn tensors_in_other_files_are_refused_wherever_they_are() {
    let expected = "the model cannot be loaded: tensor `w` keeps its data in another file; \
                    a model has to be one file";
    assert_eq!(refusal(&with(external("w"))), expected);
    let mut half_said = external("w");
    half_said.data_location = None;
    half_said.raw_data = vec![0; 8];
    assert_eq!(refusal(&with(half_said)), expected);
    let then = Graph::default().tensor(external("w")).node("Add", &["x", "w"], "t").output(
        "t",
        DataType::Float,
        &["2"],
    );
    assert_eq!(refusal(&branch(then)), expected);
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let shaped = |dims: &[i64]| with(tensor("w", DataType::Float, dims, vec![0; 8]));
    assert_eq!(
        refusal(&shaped(&[2, -1])),
        "the model cannot be loaded: tensor `w` has an axis of -1 elements: [2, -1]"
    );
    let huge = i64::MAX;
    assert_eq!(
        refusal(&shaped(&[huge, 3])),
        format!("the model cannot be loaded: tensor `w` has a shape that is too large: [{huge}, 3]")
    );
    let limits = ModelLimits::default();
    assert_eq!(
        examine(&shaped(&[1 << 40]), &limits),
        Err(Error::ModelMemory { needed: 4 << 40, most: limits.memory })
    );
    assert_eq!(
        refusal(&shaped(&[3])),
        "the model cannot be loaded: tensor `w` has 8 bytes of data; its shape says 12"
    );
    assert!(examine(&shaped(&[2]), &limits).is_ok());
}

#[test]
fn operators_that_the_engine_does_not_know_are_refused_in_branches_too() {
    let then = Graph::default().node("Mystery", &["x"], "t").output("t", DataType::Float, &["2"]);
    assert_eq!(
        refusal(&branch(then)),
        "the model cannot be loaded: operator `Mystery` is not known to the engine"
    );
    let known = Graph::default().node("Relu", &["x"], "t").output("t", DataType::Float, &["2"]);
    assert!(examine(&branch(known), &ModelLimits::default()).is_ok());
}

#[test]
fn a_tensor_in_the_file_counts_against_the_limit() {
    let model = with(zeros("w", &[1024, 2]));
    let small = ModelLimits { memory: 8191, ..ModelLimits::default() };
    assert_eq!(examine(&model, &small), Err(Error::ModelMemory { needed: 8192, most: 8191 }));
}
