//! W3C Trace Context, Level 1: which trace a call belongs to, as `traceparent` and `tracestate` say it, in and out.
//!
//! A header that is not as the recommendation has it is as if it were not there: the call begins a trace of its own, and
//! what came as `tracestate` goes no further. Baggage is not read; it passes through with all other headers.
//! Source: <https://www.w3.org/TR/trace-context-1/>.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use weir_gpu::Mark;

use super::ids;

pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Bytes of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// Bytes of a key of `tracestate`; of its tenant's and its system's part where it has both; of a value.
const KEY: usize = 256;
const KEY_TENANT: usize = 241;
const KEY_SYSTEM: usize = 14;
const VALUE: usize = 256;
/// The most members that a `tracestate` may have.
const MEMBERS: usize = 32;

/// Where a span is in its trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// The span that caused this one.
    pub parent: Option<[u8; 8]>,
    /// Whether spans of this trace are kept.
    pub sampled: bool,
    /// What tracing systems on the way here have said to themselves.
    pub state: Option<HeaderValue>,
}

/// A span of any trace, as others point to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub sampled: bool,
}

impl Link {
    /// The same as devices know it, of a span that is kept.
    pub fn mark(&self) -> Mark {
        let mut mark = [0; 24];
        let ids = self.trace.iter().chain(&self.span);
        mark.iter_mut().zip(ids).for_each(|(to, from)| *to = *from);
        mark
    }

    pub fn of(mark: &Mark) -> Self {
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.iter_mut().chain(&mut span).zip(mark).for_each(|(to, from)| *to = *from);
        Self { trace, span, sampled: true }
    }
}

impl Context {
    /// The beginning of a trace. `sample` is asked with its id.
    pub fn root(sample: impl FnOnce(&[u8; 16]) -> bool) -> Self {
        let trace = ids::trace();
        Self { trace, span: ids::span(), parent: None, sampled: sample(&trace), state: None }
    }

    /// What a request with these headers is part of, with a span of its own; nothing if they name no trace.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let (trace, parent, sampled) = only(headers, &TRACEPARENT).and_then(parse)?;
        Some(Self { trace, span: ids::span(), parent: Some(parent), sampled, state: state(headers) })
    }

    /// A span that this one causes.
    pub fn child(&self) -> Self {
        Self { span: ids::span(), parent: Some(self.span), ..self.clone() }
    }

    pub fn link(&self) -> Link {
        Link { trace: self.trace, span: self.span, sampled: self.sampled }
    }

    /// Makes the headers say that whoever gets them is caused by this span.
    pub fn put(&self, headers: &mut HeaderMap) {
        headers.insert(TRACEPARENT, self.traceparent());
        match &self.state {
            Some(state) => headers.insert(TRACESTATE, state.clone()),
            None => headers.remove(TRACESTATE),
        };
    }

    /// The header's text, of version 00.
    fn traceparent(&self) -> HeaderValue {
        let mut text = [b'-'; LENGTH];
        let flags = [u8::from(self.sampled)];
        let parts =
            [(0, &[0][..]), (3, self.trace.as_slice()), (36, self.span.as_slice()), (53, flags.as_slice())];
        for (from, bytes) in parts {
            hex(bytes, text.iter_mut().skip(from));
        }
        // It is all hexadecimal digits and hyphens.
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

/// Makes a guest's outgoing request say what caused it: the guest's own span, where the guest says so in the call's trace,
/// and `child`, the host's, otherwise. Whether it is the host's.
pub fn inject(headers: &mut HeaderMap, call: &Context, child: &Context) -> bool {
    let own = only(headers, &TRACEPARENT).and_then(parse);
    // What the guest has passed on as it got it says no more than the host does.
    let is_guests = own.is_some_and(|(trace, span, _)| trace == call.trace && span != call.span);
    if !is_guests {
        child.put(headers);
    }
    !is_guests
}

/// 32 hexadecimal digits.
pub fn text(trace: &[u8; 16]) -> String {
    let mut digits = [0; 32];
    hex(trace, digits.iter_mut());
    digits.iter().map(|digit| char::from(*digit)).collect()
}

fn hex<'a>(bytes: &[u8], digits: impl Iterator<Item = &'a mut u8>) {
    let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (place, nibble) in digits.zip(nibbles) {
        *place = digit(nibble);
    }
}

/// A header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes())
}

/// The trace, the span that caused the request, and whether it is sampled.
fn parse(text: &[u8]) -> Option<([u8; 16], [u8; 8], bool)> {
    let (head, rest) = text.split_at_checked(LENGTH)?;
    let [version] = bytes(head.get(..2)?)?;
    let is_right = match version {
        0 => rest.is_empty(),
        0xff => false,
        // What a later version adds comes after a hyphen.
        _ => rest.first().is_none_or(|byte| *byte == b'-'),
    };
    let hyphens = [2, 35, 52].iter().all(|place| head.get(*place) == Some(&b'-'));
    let trace: [u8; 16] = bytes(head.get(3..35)?)?;
    let span: [u8; 8] = bytes(head.get(36..52)?)?;
    let [flags] = bytes(head.get(53..55)?)?;
    let is_whole = is_right && hyphens && trace != [0; 16] && span != [0; 8];
    is_whole.then_some((trace, span, flags & 1 == 1))
}

/// Bytes of hexadecimal digits, none of them upper case.
fn bytes<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        for digit in digits {
            let nibble = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | nibble;
        }
    }
    Some(bytes)
}

/// What all `tracestate` headers say together, if it is as it should be.
fn state(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut values = headers.get_all(TRACESTATE).iter();
    let first = values.next()?;
    let joined = match values.next() {
        None => first.clone(),
        Some(second) => {
            let mut all = first.as_bytes().to_vec();
            for value in std::iter::once(second).chain(values) {
                all.push(b',');
                all.extend_from_slice(value.as_bytes());
            }
            HeaderValue::from_bytes(&all).ok()?
        }
    };
    is_state(joined.as_bytes()).then_some(joined)
}

fn is_state(text: &[u8]) -> bool {
    let members = || text.split(|byte| *byte == b',').map(trim).filter(|member| !member.is_empty());
    let count = members().count();
    (1..=MEMBERS).contains(&count) && members().all(is_member)
}

/// Without spaces and tabs around it.
fn trim(text: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = text.iter().position(is_text).unwrap_or(text.len());
    let end = text.iter().rposition(is_text).map_or(start, |last| last + 1);
    text.get(start..end).unwrap_or_default()
}

fn is_member(member: &[u8]) -> bool {
    let Some(equals) = member.iter().position(|byte| *byte == b'=') else { return false };
    let (Some(key), Some(value)) = (member.get(..equals), member.get(equals + 1..)) else { return false };
    let is_value = value.iter().all(|byte| matches!(byte, 0x20..=0x7e) && *byte != b'=');
    is_key(key) && is_value && (1..=VALUE).contains(&value.len())
}

fn is_key(key: &[u8]) -> bool {
    let is_of = |text: &[u8], most: usize, first: fn(&u8) -> bool| {
        let is_right = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/');
        text.len() <= most && text.first().is_some_and(first) && text.iter().all(is_right)
    };
    let letter: fn(&u8) -> bool = |byte| byte.is_ascii_lowercase();
    let letter_or_digit: fn(&u8) -> bool = |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    match key.iter().position(|byte| *byte == b'@') {
        None => is_of(key, KEY, letter),
        Some(at) => {
            let (tenant, system) = (key.get(..at), key.get(at + 1..));
            tenant.is_some_and(|tenant| is_of(tenant, KEY_TENANT, letter_or_digit))
                && system.is_some_and(|system| is_of(system, KEY_SYSTEM, letter))
        }
    }
}

#[cfg(test)]
mod tests;
