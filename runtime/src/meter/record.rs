//! The usage record: the one durable line that a call leaves for the bill. All quantities are integers.
//!
//! A record is shown, kept and exported as one JSON object whose zero and absent fields are left out. What it names is as it
//! was when the record was made. Quantities of which a call can have several (one per model and device) are in `uses`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A call, from its request to the end of its answer.
    #[default]
    Call,
    /// What calls of a function used after their answers had ended, or their clients had gone: the rest of all that ended since
    /// the record of this kind before.
    Rest,
    /// What was held of devices' memory for an interval, whether there were calls or not: graphs that stay, and reserves.
    Residency,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The function answered whole, whatever its status.
    #[default]
    Answered,
    /// The function trapped, or ended without an answer or in the middle of one.
    Failed,
    /// The deadline passed.
    TimedOut,
    /// Refused before it ran.
    Refused,
    /// The client went away.
    Cancelled,
}

impl Outcome {
    pub const ALL: [Self; 5] = [Self::Answered, Self::Failed, Self::TimedOut, Self::Refused, Self::Cancelled];

    /// As records and metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What one call used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// Unlike any other's of this data directory: the server's start (random, hex), a hyphen, a number (hex).
    pub id: String,
    pub kind: Kind,
    /// When it ended: milliseconds since 1970, UTC, by the meter's clock, which never goes back.
    pub time: u64,
    pub tenant: Arc<str>,
    /// The key that the call came with; none for a function that is open to all, or without keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<Arc<str>>,
    #[serde(skip_serializing_if = "is_zero")]
    pub revision: u64,
    /// `critical`, `standard` or `batch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Arc<str>>,
    pub outcome: Outcome,
    /// The problem's code, if its answer was one; or the limit's name that ended it in the middle of its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Arc<str>>,
    /// The answer's status, if it had one.
    #[serde(skip_serializing_if = "is_zero")]
    pub status: u64,
    /// The trace that explains it: 32 hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Arc<str>>,

    /// Calls: 1, or 0 for other kinds.
    #[serde(skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// From the request's head to the answer's end, in nanoseconds. The next five make it up.
    #[serde(skip_serializing_if = "is_zero")]
    pub wall_ns: u64,
    /// Waiting for one of the function's or the tenant's turns, or the node's sandboxes.
    #[serde(skip_serializing_if = "is_zero")]
    pub held_ns: u64,
    /// Waking the revision, making a sandbox, loading graphs.
    #[serde(skip_serializing_if = "is_zero")]
    pub startup_ns: u64,
    /// Waiting for lanes.
    #[serde(skip_serializing_if = "is_zero")]
    pub queue_ns: u64,
    /// Waiting for jobs that had a lane.
    #[serde(skip_serializing_if = "is_zero")]
    pub inference_ns: u64,
    /// All else: the guest ran, or waited for its client or for other hosts.
    #[serde(skip_serializing_if = "is_zero")]
    pub guest_ns: u64,
    /// CPU time of the threads that ran the guest, while they did.
    #[serde(skip_serializing_if = "is_zero")]
    pub guest_cpu_ns: u64,
    /// The sandbox's memory, with what the host held for it, over the time that it was the call's: bytes × milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub host_memory_byte_ms: u64,
    /// Of bodies.
    #[serde(skip_serializing_if = "is_zero")]
    pub request_bytes: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub response_bytes: u64,
    /// Bytes that the guest sent to other hosts: bodies of its requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub egress_bytes: u64,
    /// 1 if the call woke its revision from zero.
    #[serde(skip_serializing_if = "is_zero")]
    pub cold_starts: u64,
    /// The cold start's phases: mapping code, making the first sandbox.
    #[serde(skip_serializing_if = "is_zero")]
    pub cold_code_ns: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub cold_sandbox_ns: u64,
    /// What it used of devices, by device and model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<Use>,
}

/// What a call used of one device with one model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Use {
    /// The device's name, as `cpu`.
    pub device: Arc<str>,
    /// The model's name; empty for bytes of the guest's own and for what is no model's.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub model: Arc<str>,
    /// Inferences that were answered, and that were not.
    #[serde(skip_serializing_if = "is_zero")]
    pub inferences: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub failed_inferences: u64,
    /// Time that lanes were held: its part of its jobs', to the nanosecond as the lanes measured it.
    #[serde(skip_serializing_if = "is_zero")]
    pub device_ns: u64,
    /// Waiting for lanes.
    #[serde(skip_serializing_if = "is_zero")]
    pub queue_ns: u64,
    /// Graphs loaded because the call asked for them, and the time that took.
    #[serde(skip_serializing_if = "is_zero")]
    pub loads: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub load_ns: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub operators: u64,
    /// The most bytes of activations at one time: its part. Sums keep the largest.
    #[serde(skip_serializing_if = "is_zero")]
    pub peak_bytes: u64,
    /// Device memory over time, bytes × milliseconds: of activations for a call, of graphs that stay for residency.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_byte_ms: u64,
    /// Memory that is kept free for the tenant over time, bytes × milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub reserved_byte_ms: u64,
    /// Rows that it brought; rows of the batches that it rode in, zeros included; rows of zeros in those.
    #[serde(skip_serializing_if = "is_zero")]
    pub rows: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub batch_rows: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub padding_rows: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
