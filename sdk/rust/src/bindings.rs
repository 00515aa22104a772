//! The world `weir:function/function` of `wit/`, as Rust. Generated; use it directly for what the SDK does
//! not wrap, such as outgoing requests.

#![allow(missing_docs, unsafe_code, clippy::all, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

wit_bindgen::generate!({
    path: "../../wit",
    world: "weir:function/function",
    generate_all,
    pub_export_macro: true,
    default_bindings_module: "weir_sdk::bindings",
});
