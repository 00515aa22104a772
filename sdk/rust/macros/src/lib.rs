//! The `#[function]` attribute of `weir-sdk`.
//!
//! It reads nothing of the function but its name, so it needs no parser of Rust: the types are checked by the
//! compiler, where `weir_sdk::__function!` hands the function to the SDK.

use proc_macro::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// Makes a function the one that answers the component's HTTP requests.
///
/// Write it once, on a plain function `fn(Request) -> Result<Response, E>` with `E: Into<weir_sdk::Error>`.
/// The function itself stays as it is and can be called in tests.
#[proc_macro_attribute]
pub fn function(arguments: TokenStream, item: TokenStream) -> TokenStream {
    if !arguments.is_empty() {
        return compile_error("#[function] takes no arguments");
    }
    match handler_name(item.clone()) {
        Ok(name) => {
            let mut output = item;
            output.extend(export(name));
            output
        }
        Err(message) => {
            let mut output = compile_error(message);
            output.extend(item);
            output
        }
    }
}

/// The name in `fn name`, at the top level of the item.
fn handler_name(item: TokenStream) -> Result<Ident, &'static str> {
    let mut tokens = item.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word.to_string() == "async" => {
                return Err(
                    "#[function] needs a plain `fn`: calls into the host already wait without holding a thread",
                );
            }
            TokenTree::Ident(word) if word.to_string() == "fn" => {
                if let Some(TokenTree::Ident(name)) = tokens.next() {
                    return Ok(name);
                }
            }
            _ => {}
        }
    }
    Err("#[function] belongs on a function: `fn handle(request: Request) -> Result<Response, Error>`")
}

/// `::weir_sdk::__function! { name }`, with the name keeping its place in the tenant's source, so that an
/// error of type points there.
fn export(name: Ident) -> TokenStream {
    let mut output: TokenStream = "::weir_sdk::__function!".parse().unwrap_or_default();
    let argument = TokenStream::from(TokenTree::Ident(name));
    output.extend([TokenTree::Group(Group::new(Delimiter::Brace, argument))]);
    output
}

fn compile_error(message: &str) -> TokenStream {
    format!("::core::compile_error!({message:?});").parse().unwrap_or_default()
}
