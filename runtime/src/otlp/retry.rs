//! What an answer of the receiver means for the batch, and when it is sent again. Source: OpenTelemetry's specification of
//! OTLP, "Failures" and "Retryable Response Codes".

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};
use prost::Message;
use time::format_description::well_known::Rfc2822;
use tonic::{Code, Status};

/// The first wait, and the longest, where the receiver says nothing.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);

/// Why a batch was not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// It may be later, after so long if the receiver says how long.
    Now { after: Option<Duration>, why: String },
    /// It will not be.
    Ever { why: String },
}

/// What a status of gRPC means.
pub fn status(status: &Status) -> Refused {
    let why = format!("{:?}: {}", status.code(), status.message());
    // It is this side's: there was no answer.
    let without_answer = std::error::Error::source(status).is_some();
    let after = delay(status.details());
    let may_be_later = match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        // Only where the receiver says that it recovers.
        Code::ResourceExhausted => after.is_some(),
        _ => without_answer,
    };
    if may_be_later { Refused::Now { after, why } } else { Refused::Ever { why } }
}

/// What a status of HTTP means, with its headers and the text of its body.
pub fn http(status: StatusCode, headers: &HeaderMap, text: &str) -> Refused {
    let why = match text {
        "" => status.to_string(),
        text => format!("{status}: {text}"),
    };
    match status.as_u16() {
        429 | 502 | 503 | 504 => Refused::Now { after: retry_after(headers, SystemTime::now()), why },
        _ => Refused::Ever { why },
    }
}

/// Seconds, or a date. Source: RFC 9110, section 10.2.3.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = time::OffsetDateTime::parse(text, &Rfc2822).ok()?;
    Some(SystemTime::from(date).duration_since(now).unwrap_or_default())
}

/// `google.rpc.Status`, which comes with a status of gRPC.
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    delay: Option<Delay>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// How long the receiver asks to wait.
fn delay(details: &[u8]) -> Option<Duration> {
    let details = Details::decode(details).ok()?.details;
    let info = details.iter().find(|any| any.type_url.ends_with("google.rpc.RetryInfo"))?;
    let Delay { seconds, nanos } = RetryInfo::decode(info.value.as_slice()).ok()?.delay.unwrap_or_default();
    let (seconds, nanos) = (u64::try_from(seconds).unwrap_or(0), u32::try_from(nanos).unwrap_or(0));
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos.into())))
}

/// Waits that become longer, and are not those of all others at the same time.
#[derive(Debug, Default)]
pub struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The next wait: a half to all of twice the one before. `random` is any number.
    pub fn next(&mut self, random: u64) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.tries.min(16)).min(LONGEST);
        self.tries = self.tries.saturating_add(1);
        let half = whole / 2;
        let part = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(random.checked_rem(part).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(seconds: i64) -> Vec<u8> {
        let delay = Some(Delay { seconds, nanos: 500_000_000 });
        let value = RetryInfo { delay }.encode_to_vec();
        let other = Any { type_url: "type.googleapis.com/google.rpc.Help".to_owned(), value: vec![1] };
        let info = Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(), value };
        Details { details: vec![other, info] }.encode_to_vec()
    }

    fn is_later(refused: &Refused) -> bool {
        matches!(refused, Refused::Now { .. })
    }

    #[test]
    fn the_codes_of_the_specification_are_tried_again() {
        for (code, later) in [
            (Code::Cancelled, true),
            (Code::Unknown, false),
            (Code::InvalidArgument, false),
            (Code::DeadlineExceeded, true),
            (Code::NotFound, false),
            (Code::AlreadyExists, false),
            (Code::PermissionDenied, false),
            (Code::Unauthenticated, false),
            (Code::ResourceExhausted, false),
            (Code::FailedPrecondition, false),
            (Code::Aborted, true),
            (Code::OutOfRange, true),
            (Code::Unimplemented, false),
            (Code::Internal, false),
            (Code::Unavailable, true),
            (Code::DataLoss, true),
        ] {
            assert_eq!(is_later(&status(&Status::new(code, "no"))), later, "{code:?}");
        }
        for (code, later) in
            [(200, false), (400, false), (401, false), (404, false), (413, false), (429, true), (500, false)]
                .into_iter()
                .chain([(501, false), (502, true), (503, true), (504, true)])
        {
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(is_later(&http(status, &HeaderMap::new(), "")), later, "{code}");
        }
    }

    #[test]
    fn the_receiver_says_how_long_to_wait() {
        let exhausted = Status::with_details(Code::ResourceExhausted, "slow down", info(7).into());
        let expected = Refused::Now {
            after: Some(Duration::from_millis(7500)),
            why: "ResourceExhausted: slow down".to_owned(),
        };
        assert_eq!(status(&exhausted), expected);
        let unknown = Status::with_details(Code::Unavailable, "", b"garbage".to_vec().into());
        assert!(matches!(status(&unknown), Refused::Now { after: None, .. }));
        assert_eq!(delay(&info(-1)), Some(Duration::from_millis(500)));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, seconds) in [
            ("3", Some(3)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(retry_after(&headers, now), seconds.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn waits_grow_to_the_longest() {
        for random in [0, 1, u64::MAX] {
            let mut backoff = Backoff::default();
            let waits: Vec<_> = (0..20).map(|_| backoff.next(random)).collect();
            assert!(waits[0] >= FIRST / 2 && waits[0] <= FIRST);
            assert!(waits[5] >= FIRST * 16 && waits[5] <= FIRST * 32);
            assert!(waits[19] >= LONGEST / 2 && waits[19] <= LONGEST);
        }
    }
}
