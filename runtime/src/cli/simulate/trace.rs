//! Traces as CSV. Read line by line, so that one may be larger than the memory; a line that is off is named by its number.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::sync::Arc;

use csv::{ReaderBuilder, StringRecord, Trim};
use weir_gpu::Class;
use weir_gpu::simulate::Arrival;

const HEADER: [&str; 5] = ["time", "tenant", "model", "rows", "class"];

const NANOS: u64 = 1_000_000_000;

/// The requests of a trace. Ends at the first line that is off, which [`Trace::whole`] tells.
pub struct Trace<R> {
    lines: csv::Reader<R>,
    record: StringRecord,
    /// Names that have come up, so that each is kept once.
    names: HashSet<Arc<str>>,
    last: u64,
    failure: Option<String>,
}

impl<R: Read> Trace<R> {
    /// # Errors
    /// A sentence that names what is wrong with the header.
    pub fn open(input: R) -> Result<Self, String> {
        let mut lines = ReaderBuilder::new().trim(Trim::All).from_reader(input);
        let header = lines.headers().map_err(|error| error.to_string())?;
        if header.iter().ne(HEADER) {
            let given = header.iter().collect::<Vec<_>>().join(",");
            return Err(format!("the first line is `{given}`; it must be `{}`", HEADER.join(",")));
        }
        Ok(Self { lines, record: StringRecord::new(), names: HashSet::new(), last: 0, failure: None })
    }

    /// # Errors
    /// A sentence that names the line that is off, and what is expected there.
    pub fn whole(self) -> Result<(), String> {
        self.failure.map_or(Ok(()), Err)
    }

    fn read(&mut self) -> Result<Option<Arrival>, String> {
        if !self.lines.read_record(&mut self.record).map_err(|error| error.to_string())? {
            return Ok(None);
        }
        let line = self.record.position().map_or(0, csv::Position::line);
        self.arrival().map(Some).map_err(|error| format!("line {line}: {error}"))
    }

    fn arrival(&mut self) -> Result<Arrival, String> {
        let record = std::mem::take(&mut self.record);
        let field = |at: usize| record.get(at).unwrap_or_default();
        let at = seconds(field(0)).ok_or_else(|| {
            format!("time is `{}`; expected seconds with up to nine decimals, such as 12.034", field(0))
        })?;
        if at < self.last {
            return Err(format!(
                "time is {}, before that of the line above; sort the trace by time",
                field(0)
            ));
        }
        self.last = at;
        let rows: u32 = field(3)
            .parse()
            .map_err(|_| format!("rows is `{}`; expected a whole number, such as 1", field(3)))?;
        let class = class(field(4)).ok_or_else(|| {
            format!("class is `{}`; expected critical, standard, batch, or nothing for standard", field(4))
        })?;
        let (tenant, model) = (self.name("tenant", field(1))?, self.name("model", field(2))?);
        self.record = record;
        Ok(Arrival { at, tenant, model, rows: rows.into(), class })
    }

    fn name(&mut self, field: &str, text: &str) -> Result<Arc<str>, String> {
        if text.is_empty() {
            return Err(format!("{field} is empty; expected a name"));
        }
        if let Some(name) = self.names.get(text) {
            return Ok(Arc::clone(name));
        }
        let name: Arc<str> = text.into();
        self.names.insert(Arc::clone(&name));
        Ok(name)
    }
}

impl<R: Read> Iterator for Trace<R> {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        if self.failure.is_some() {
            return None;
        }
        self.read().unwrap_or_else(|error| {
            self.failure = Some(error);
            None
        })
    }
}

/// Writes a trace.
///
/// # Errors
/// What the output says.
pub fn write(output: impl Write, arrivals: impl Iterator<Item = Arrival>) -> io::Result<()> {
    let mut lines = csv::Writer::from_writer(output);
    lines.write_record(HEADER).map_err(cause)?;
    for Arrival { at, tenant, model, rows, class } in arrivals {
        let time = format!("{}.{:09}", at / NANOS, at % NANOS);
        lines
            .write_record([time.as_str(), &tenant, &model, &rows.to_string(), class_name(class)])
            .map_err(cause)?;
    }
    lines.flush()
}

/// What the output said. The conversion that csv has hides the kind of it.
fn cause(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Seconds with up to nine decimals, in nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 9 {
        return None;
    }
    let nanos: u64 = format!("{decimals:0<9}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(NANOS)?.checked_add(nanos)
}

fn class(text: &str) -> Option<Class> {
    match text {
        "" | "standard" => Some(Class::Standard),
        "critical" => Some(Class::Critical),
        "batch" => Some(Class::Batch),
        _ => None,
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Critical => "critical",
        Class::Standard => "standard",
        Class::Batch => "batch",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Arrival>, String> {
        let mut trace = Trace::open(text.as_bytes())?;
        let arrivals = trace.by_ref().collect();
        trace.whole().map(|()| arrivals)
    }

    #[test]
    fn what_is_written_is_read() {
        let arrival = |at, tenant: &str, class| Arrival {
            at,
            tenant: tenant.into(),
            model: "m".into(),
            rows: 2,
            class,
        };
        let arrivals = vec![
            arrival(1, "a, \"b\"", Class::Standard),
            arrival(NANOS, "a", Class::Critical),
            arrival(61_000_000_020, "b", Class::Batch),
        ];
        let mut text = Vec::new();
        write(&mut text, arrivals.iter().cloned()).unwrap();
        assert_eq!(read(std::str::from_utf8(&text).unwrap()).unwrap(), arrivals);
    }

    #[test]
    fn classes_may_be_empty_and_decimals_few() {
        let read = read("time,tenant,model,rows,class\n3,a,m,1,\n4.5, b, m, 1, batch\n").unwrap();
        assert_eq!((read[0].at, read[0].class), (3 * NANOS, Class::Standard));
        assert_eq!((read[1].at, &*read[1].tenant, read[1].class), (4_500_000_000, "b", Class::Batch));
    }

    #[test]
    fn a_line_that_is_off_is_named() {
        let refusal =
            |line: &str| read(&format!("time,tenant,model,rows,class\n1,a,m,1,\n{line}\n")).unwrap_err();
        let expected = "line 3: time is `now`; expected seconds with up to nine decimals, such as 12.034";
        assert_eq!(refusal("now,a,m,1,"), expected);
        for time in ["", ".5", "1.", "-1", "1e3", "1.0000000001", "99999999999999"] {
            assert!(refusal(&format!("{time},a,m,1,")).starts_with("line 3: time"), "{time}");
        }
        assert_eq!(
            refusal("0.5,a,m,1,"),
            "line 3: time is 0.5, before that of the line above; sort the trace by time"
        );
        assert_eq!(refusal("2,a,m,one,"), "line 3: rows is `one`; expected a whole number, such as 1");
        assert!(refusal("2,a,m,1,urgent").contains("class is `urgent`; expected critical, standard, batch"));
        assert_eq!(refusal("2,,m,1,"), "line 3: tenant is empty; expected a name");
        assert!(refusal("2,a,m").contains("line: 3"));
        let header = read("tenant,time\n").unwrap_err();
        assert_eq!(header, "the first line is `tenant,time`; it must be `time,tenant,model,rows,class`");
    }
}
