//! The macros of `weir-sdk`: the attribute of a function's handler, and structs as models' inputs and outputs.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, ItemFn, LitStr, parse_macro_input};

/// Makes a function the one that answers the component's HTTP requests.
///
/// Write it once, on a function `fn(Request) -> Result<Response, E>` with `E: Into<weir_sdk::Error>`, which may be `async`.
/// The function itself stays as it is and can be called in tests.
#[proc_macro_attribute]
pub fn function(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let unchanged = Tokens::from(item.clone());
    let name = (|| {
        if !arguments.is_empty() {
            return Err(Error::new(Tokens::from(arguments).span(), "#[function] takes no arguments"));
        }
        let wrong =
            "#[function] belongs on a function: `fn handle(request: Request) -> Result<Response, Error>`";
        let parsed: ItemFn = syn::parse(item).map_err(|error| Error::new(error.span(), wrong))?;
        Ok(parsed.sig.ident)
    })();
    // The name keeps its place in the tenant's source, so that an error of type points there.
    let export = match name {
        Ok(name) => quote!(::weir_sdk::__function! { #name }),
        Err(error) => error.to_compile_error(),
    };
    quote!(#unchanged #export).into()
}

/// Makes a struct the inputs of a model: each field, which is `weir_sdk::ToTensor`, is the input of its name, or of the one in
/// `#[weir(name = "…")]`.
#[proc_macro_derive(Inputs, attributes(weir))]
pub fn inputs(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as DeriveInput);
    derive(&item, |fields| {
        let inputs = fields.iter().map(|(field, name)| {
            let ident = &field.ident;
            quote_spanned!(field.ty.span()=> ::weir_sdk::__private::input(#name, self.#ident)?)
        });
        let (generics, arguments, bounds) = item.generics.split_for_impl();
        let ident = &item.ident;
        quote! {
            impl #generics ::weir_sdk::Inputs for #ident #arguments #bounds {
                fn into_inputs(
                    self,
                ) -> ::core::result::Result<::std::vec::Vec<(::std::string::String, ::weir_sdk::Tensor)>, ::weir_sdk::Error> {
                    ::core::result::Result::Ok(::std::vec![#(#inputs),*])
                }
            }
        }
    })
}

/// Makes a struct the outputs of a model: each field, which is `weir_sdk::FromTensor`, is the output of its name, or of the one in
/// `#[weir(name = "…")]`. The model may have more.
#[proc_macro_derive(Outputs, attributes(weir))]
pub fn outputs(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as DeriveInput);
    derive(&item, |fields| {
        let outputs = fields.iter().map(|(field, name)| {
            let ident = &field.ident;
            quote_spanned!(field.ty.span()=> #ident: ::weir_sdk::__private::output(&mut outputs, #name)?)
        });
        let (generics, arguments, bounds) = item.generics.split_for_impl();
        let ident = &item.ident;
        quote! {
            impl #generics ::weir_sdk::FromOutputs for #ident #arguments #bounds {
                fn from_outputs(
                    mut outputs: ::weir_sdk::Outputs,
                ) -> ::core::result::Result<Self, ::weir_sdk::Error> {
                    ::core::result::Result::Ok(Self { #(#outputs),* })
                }
            }
        }
    })
}

/// What `write` makes of the struct's fields and their tensors' names.
fn derive(item: &DeriveInput, write: impl FnOnce(&[(&Field, String)]) -> Tokens) -> TokenStream {
    let named = || {
        let Data::Struct(data) = &item.data else { return None };
        let Fields::Named(fields) = &data.fields else { return None };
        Some(&fields.named)
    };
    let fields = named().ok_or_else(|| {
        Error::new(item.ident.span(), "only a struct with named fields has a name for each tensor")
    });
    let fields = fields.and_then(|fields| {
        fields.iter().map(|field| Ok((field, tensor_name(field)?))).collect::<Result<Vec<_>, _>>()
    });
    fields.map_or_else(|error| error.to_compile_error(), |fields| write(&fields)).into()
}

/// The name in `#[weir(name = "…")]`, or the field's own.
fn tensor_name(field: &Field) -> Result<String, Error> {
    let mut name = field
        .ident
        .as_ref()
        .map(|ident| ident.to_string().trim_start_matches("r#").to_string())
        .unwrap_or_default();
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("weir")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("expected `name = \"…\"`"));
            }
            name = meta.value()?.parse::<LitStr>()?.value();
            Ok(())
        })?;
    }
    Ok(name)
}
