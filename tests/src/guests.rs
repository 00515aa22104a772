//! Where the built guests are: one constant each, written by build.rs.

include!(concat!(env!("OUT_DIR"), "/guests.rs"));

/// The guest in Python, which `make guests` builds with componentize-py.
pub fn python() -> std::path::PathBuf {
    let path = crate::root().join("target/python-guest/guest.wasm");
    assert!(path.exists(), "{} is not there; run `make guests` first", path.display());
    path
}
