//! Server-sent events (HTML standard, section 9.2).

use std::fmt;

use serde::Serialize;

use crate::Error;

/// One event of a [`Response::events`](crate::Response::events) body: its data, and if given an id and a name. Shown as text it is
/// what is sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    id: Option<String>,
    name: Option<String>,
    data: String,
}

impl Event {
    /// An event with this text; several lines arrive as several lines.
    pub fn new(data: impl Into<String>) -> Self {
        Self { data: data.into(), ..Self::default() }
    }

    /// An event with `value` as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        Ok(Self::new(serde_json::to_string(value)?))
    }

    /// The same event with a name, which listeners choose it by; without one it is a `message`.
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// The same event with an id, which a client that connects again sends as `last-event-id`.
    pub fn with_id(self, id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), ..self }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A line break in an id or a name would begin a field of its own.
        let line = |text: &str| text.replace(['\r', '\n', '\0'], " ");
        if let Some(id) = &self.id {
            writeln!(f, "id: {}", line(id))?;
        }
        if let Some(name) = &self.name {
            writeln!(f, "event: {}", line(name))?;
        }
        for data in self.data.replace("\r\n", "\n").split(['\n', '\r']) {
            writeln!(f, "data: {data}")?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_its_fields_and_an_empty_line() {
        let event = Event::json(&[1]).unwrap().with_name("tick").with_id("7");
        assert_eq!(event.to_string(), "id: 7\nevent: tick\ndata: [1]\n\n");
        assert_eq!(Event::new("a\r\nb\rc\n").to_string(), "data: a\ndata: b\ndata: c\ndata: \n\n");
    }

    #[test]
    fn text_of_a_caller_forges_no_field() {
        let event = Event::new("x\n\nevent: y").with_name("a\ndata: b").with_id("1\r2");
        assert_eq!(event.to_string(), "id: 1 2\nevent: a data: b\ndata: x\ndata: \ndata: event: y\n\n");
    }
}
