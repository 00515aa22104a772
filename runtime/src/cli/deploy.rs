//! `weir deploy`

use std::path::PathBuf;

use clap::Args;
use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde_json::{Map, Value, json};
use weir::signature::Signature;

use super::Context;
use super::client::{Failure, Upload};
use super::output::{self, Fields};
use super::sign;
use super::traffic::shares;

#[derive(Args)]
pub struct Deploy {
    /// The function's name
    name: String,
    /// The component (.wasm)
    component: PathBuf,
    /// The component's signature, as `weir sign` writes it
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    /// Percent of the function's traffic that the new revision gets; the others share the rest as before
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(..=100))]
    traffic: u8,
    #[command(flatten)]
    configuration: Configuration,
}

/// A function's configuration: a file, and flags over it.
#[derive(Args)]
pub struct Configuration {
    /// A configuration file (JSON)
    #[arg(long)]
    config: Option<PathBuf>,
    /// A model that the function may open; may be given more than once
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
    /// An environment variable of the function; may be given more than once
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// A value of the configuration, such as idle_timeout=5s or limits.memory=64MiB
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    sets: Vec<String>,
}

impl Deploy {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let config = self.configuration.read()?;
        let signature = match &self.signature {
            Some(file) => Some(sign::read(file, Signature::parse)?),
            None => None,
        };
        let upload = Upload::open(&self.component).await?;
        let bytes = upload.bytes;
        let (body, bar) = upload.body("compiling");
        let config = Part::text(config.to_string());
        let form =
            Form::new().part("config", config).part("component", Part::stream_with_length(body, bytes));
        let path = format!("/v1/functions/{}/revisions?traffic={}", self.name, self.traffic);
        let mut request = context.client.request(Method::POST, &path).multipart(form);
        if let Some(signature) = signature {
            request = request.header("weir-signature", signature.base64());
        }
        let deployed = context.client.json(request).await;
        bar.finish_and_clear();
        let deployed = deployed?;
        if context.json {
            output::json(&deployed);
            return Ok(());
        }
        output::line(format!(
            "{} revision {} ({}, {})",
            output::text(deployed.at("function")),
            deployed.at("revision"),
            output::digest(deployed.at("digest")),
            output::size(deployed.at("bytes")),
        ));
        if self.traffic < 100 {
            output::line(format!("traffic: {}", shares(deployed.at("traffic"))));
        }
        // A call of another tenant's than `default` names it, whatever the key.
        let tenant = deployed.at("tenant").as_str().unwrap_or(weir::DEV_TENANT);
        let is_meant = tenant == weir::DEV_TENANT && context.client.named_tenant().is_none();
        let named = if is_meant { String::new() } else { format!(" --tenant {tenant}") };
        output::line(format!("call it: weir call {}{named}", self.name));
        Ok(())
    }
}

impl Configuration {
    /// The file with the flags laid over it.
    pub fn read(&self) -> Result<Value, Failure> {
        let mut config = match &self.config {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| Failure::Usage(format!("{} cannot be read: {error}", path.display())))?;
                serde_json::from_str(&text)
                    .map_err(|error| Failure::Usage(format!("{} is not JSON: {error}", path.display())))?
            }
            None => json!({}),
        };
        let fields = config
            .as_object_mut()
            .ok_or_else(|| Failure::Usage("the configuration is not a JSON object".to_owned()))?;
        if !self.models.is_empty() {
            fields.insert("models".to_owned(), json!(self.models));
        }
        for pair in &self.env {
            let (name, value) = split("--env", pair)?;
            set(fields, &["env", name], Value::from(value));
        }
        for pair in &self.sets {
            let (field, value) = split("--set", pair)?;
            let path: Vec<&str> = field.split('.').collect();
            // What reads as a JSON number, boolean or list is one; all else is a string.
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            set(fields, &path, value);
        }
        Ok(config)
    }
}

fn split<'a>(flag: &str, pair: &'a str) -> Result<(&'a str, &'a str), Failure> {
    pair.split_once('=').ok_or_else(|| Failure::Usage(format!("{flag} {pair}: write NAME=VALUE")))
}

fn set(fields: &mut Map<String, Value>, path: &[&str], value: Value) {
    match path {
        [] => {}
        [last] => {
            fields.insert((*last).to_owned(), value);
        }
        [first, rest @ ..] => {
            let inner = fields.entry(*first).or_insert_with(|| json!({}));
            if !inner.is_object() {
                *inner = json!({});
            }
            if let Some(inner) = inner.as_object_mut() {
                set(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_lie_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        std::fs::write(&file, r#"{"env": {"A": "1"}, "reuse": 2}"#).unwrap();
        let configuration = Configuration {
            config: Some(file),
            models: vec!["m".to_owned()],
            env: vec!["B=2=3".to_owned()],
            sets: vec!["reuse=8".to_owned(), "limits.memory=64MiB".to_owned()],
        };
        let expected = json!({
            "env": { "A": "1", "B": "2=3" },
            "reuse": 8,
            "models": ["m"],
            "limits": { "memory": "64MiB" },
        });
        assert_eq!(configuration.read().unwrap(), expected);
    }
}
