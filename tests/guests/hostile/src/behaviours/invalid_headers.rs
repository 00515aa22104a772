//! Tries headers that would end a head early, begin another answer, or speak for the connection.

use weir_sdk::bindings::wasi::http::types::{Fields, IncomingRequest, ResponseOutparam};

pub fn run(_: IncomingRequest, out: ResponseOutparam) {
    let wrong: [(&str, &[u8]); 12] = [
        ("", b"a"),
        ("a b", b"c"),
        ("a:", b"b"),
        ("a\r\nb", b"c"),
        ("\u{e4}", b"a"),
        ("x-split", b"a\r\nset-cookie: b"),
        ("x-line", b"a\nb"),
        ("x-nul", b"a\0b"),
        ("connection", b"upgrade"),
        ("transfer-encoding", b"chunked"),
        ("upgrade", b"h2c"),
        ("keep-alive", b"timeout=1000"),
    ];
    let taken: Vec<&str> = wrong
        .iter()
        .filter(|(name, value)| Fields::new().append(name, value).is_ok())
        .map(|(name, _)| *name)
        .collect();
    let from_list = Fields::from_list(&wrong.map(|(name, value)| (name.to_owned(), value.to_vec())));
    crate::answer(out, &format!("taken: {taken:?}, as a list: {}", from_list.is_ok()));
}
