//! `weir keys`

use std::time::SystemTime;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::Context;
use super::client::Failure;
use super::output::{self, Fields, list, text};

#[derive(Args)]
pub struct Keys {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// List keys
    List,
    /// Make a key; it is shown once
    Create(Create),
    /// Make a key like this one, which works on for a while
    Rotate {
        /// The key's id; what the list shows of it does too
        #[arg(value_parser = id)]
        id: String,
        /// How long the old key still works, such as 1h
        #[arg(long, default_value = "1h", value_name = "TIME")]
        overlap: String,
    },
    /// Revoke a key, at once and for good
    Revoke {
        /// The key's id; what the list shows of it does too
        #[arg(value_parser = id)]
        id: String,
    },
}

#[derive(Args)]
struct Create {
    /// operator, admin, deployer, caller or viewer
    role: String,
    /// What to call it
    #[arg(long, default_value = "")]
    label: String,
    /// The only functions that it may call; only for callers
    #[arg(long, value_name = "FUNCTION", value_delimiter = ',')]
    functions: Option<Vec<String>>,
    /// How long it works, such as 30days; for good if it is not set
    #[arg(long, value_name = "TIME")]
    expires_in: Option<String>,
}

/// A key's id, from it alone, from what the list shows, `weir_ID_…`, or from a whole key, whose secret is not for sending.
pub(super) fn id(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("weir_").unwrap_or(text);
    let id = rest.split(['_', '…']).next().unwrap_or_default();
    match !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric()) {
        true => Ok(id.to_owned()),
        false => Err("write a key's id, as `weir keys` shows it".to_owned()),
    }
}

impl Keys {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = &context.client;
        match self.action.unwrap_or(Action::List) {
            Action::List => {
                let listed = client.list("/v1/keys", "keys").await?;
                if context.json {
                    output::json(&listed);
                } else {
                    table(list(listed.at("keys")));
                }
            }
            Action::Create(Create { role, label, functions, expires_in }) => {
                let mut body = json!({ "role": role, "label": label });
                if let Some(fields) = body.as_object_mut() {
                    fields.extend(functions.map(|functions| ("functions".to_owned(), functions.into())));
                    fields.extend(expires_in.map(|time| ("expires_in".to_owned(), time.into())));
                }
                made(context, client.json(client.request(Method::POST, "/v1/keys").json(&body)).await?);
            }
            Action::Rotate { id, overlap } => {
                let path = format!("/v1/keys/{id}/rotate");
                let body = json!({ "overlap": overlap });
                made(context, client.json(client.request(Method::POST, &path).json(&body)).await?);
            }
            Action::Revoke { id } => {
                client.json(client.request(Method::DELETE, &format!("/v1/keys/{id}"))).await?;
            }
        }
        Ok(())
    }
}

/// A key that was made: the key alone on stdout, so that it can be kept in a variable.
fn made(context: &Context, key: Value) {
    if context.json {
        output::json(&key);
        return;
    }
    eprintln!("key {} of role {}; it is not shown again:", text(key.at("id")), text(key.at("role")));
    output::line(text(key.at("key")));
}

fn table(keys: &[Value]) {
    output::table(
        ["KEY", "ROLE", "TENANT", "LABEL", "CREATED", "EXPIRES", "LAST USED", "STATE"],
        keys.iter().map(|key| {
            let [prefix, role, tenant, label, created, expires, used] =
                ["prefix", "role", "tenant", "label", "created", "expires", "last_used"]
                    .map(|field| text(key.at(field)));
            let ended = |moment: &Value| {
                let moment = moment.as_str().and_then(|moment| humantime::parse_rfc3339(moment).ok());
                moment.is_some_and(|moment| moment <= SystemTime::now())
            };
            let state = match key.at("revoked").is_null() {
                false => "revoked",
                true if ended(key.at("expires")) => "expired",
                true => "-",
            };
            [format!("{prefix}…"), role, tenant, label, created, expires, used, state.to_owned()]
        }),
    );
}

#[cfg(test)]
mod tests {
    use super::id;

    #[test]
    fn a_key_is_named_by_what_is_shown_of_it_and_its_secret_is_left_out() {
        for text in ["91e6", "weir_91e6", "weir_91e6_…", "weir_91e6…", "weir_91e6_c2VjcmV0_x"] {
            assert_eq!(id(text).as_deref(), Ok("91e6"), "{text}");
        }
        for wrong in ["", "weir_", "../tenants", "weir__secret", "a/b"] {
            assert!(id(wrong).is_err(), "{wrong}");
        }
    }
}
