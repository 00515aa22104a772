//! Where the built guests are, and the hostile corpus: one constant, or one behaviour, for each, written by build.rs.

include!(concat!(env!("OUT_DIR"), "/guests.rs"));

/// What a behaviour is part of.
#[derive(Debug, Clone, Copy)]
pub enum Component {
    /// A guest that was built. Its path says what it is to do.
    File(&'static str),
    /// A component in the text format. It does one thing.
    Text(&'static str),
}

impl Component {
    /// The component's bytes.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::File(path) => std::fs::read(path).unwrap(),
            Self::Text(text) => wat::parse_str(text).unwrap(),
        }
    }
}

/// The guest in Python, which `make guests` builds with componentize-py.
pub fn python() -> std::path::PathBuf {
    let path = crate::root().join("target/python-guest/guest.wasm");
    assert!(path.exists(), "{} is not there; run `make guests` first", path.display());
    path
}
