//! How the texts that the HTTP surface reads and writes look, for its description: what a string's type does not say. What
//! a pattern lets through the server reads, but for hosts, of which it is only the form.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

macro_rules! texts {
    ($($(#[doc = $doc:literal])* $text:ident = $pattern:literal, such as $example:literal;)*) => {
        $($(#[doc = $doc])* pub enum $text {}

        impl JsonSchema for $text {
            fn schema_name() -> Cow<'static, str> {
                stringify!($text).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": concat!($($doc),*).trim(),
                    "type": "string",
                    "pattern": $pattern,
                    "examples": [$example],
                })
            }
        })*
    };
}

texts! {
    /// A function's name, as a label of a host name.
    FunctionText = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", such as "hello";
    /// A tenant's name, as a label of a host name. `system` is what belongs to no tenant.
    TenantText = "^(?!system$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", such as "acme";
    /// A rate card's name, as a label of a host name.
    RateCardText = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", such as "default";
    /// A model's name.
    ModelText = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", such as "magika.onnx";
    /// A key's id, which is not secret.
    KeyText = "^[0-9a-f]{12}$", such as "0123456789ab";
    /// A time span: one or more numbers, each with a unit.
    SpanText = "^[0-9]{1,9} ?(ns|us|ms|s|m|h|days|day|d|weeks|week|w|months|month|years|year)( [0-9]{1,9} ?(ns|us|ms|s|m|h|days|day|d|weeks|week|w|months|month|years|year)){0,9}$", such as "1m 30s";
    /// A moment: RFC 3339, UTC.
    MomentText = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?Z$", such as "2026-01-31T12:00:00Z";
    /// SHA-256 of the bytes, lower-case hex.
    DigestText = "^sha256:[0-9a-f]{64}$", such as "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    /// An ed25519 public key: base64 of its DER form, as PEM has it between its lines. PEM is read too.
    PublicKeyText = "^MCowBQYDK2VwAyEA[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$", such as "MCowBQYDK2VwAyEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    /// A header's name.
    HeaderText = "^[A-Za-z0-9-]{1,100}$", such as "x-user";
    /// A host's name: labels with dots between them, two at least, and the last no number.
    HostNameText = "^([a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?[.]){1,4}[a-z]([a-z0-9-]{0,30}[a-z0-9])?$", such as "api.example.com";
    /// A host that requests may go to: a name, one below a name, or an address, and a port if it is not the scheme's.
    HostText = "^(\\[[0-9A-Fa-f:.]{2,45}\\]|([*][.])?[A-Za-z0-9_.-]{1,253})(:[1-9][0-9]{0,4})?$", such as "api.example.com";
}
