//! `weir models`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::{Method, header};
use serde_json::Value;

use super::Context;
use super::client::{Failure, Upload};
use super::output::{self, Fields, digest, list, size, text};

#[derive(Args)]
pub struct Models {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// List models
    List,
    /// Upload a model, in place of the one of that name
    Put {
        /// The model's name
        name: String,
        /// The model's file
        file: PathBuf,
        /// The file's format
        #[arg(long, default_value = "onnx")]
        format: String,
    },
    /// Say how a model is held in memory and run; what is not said stays as it is
    Configure(Configure),
    /// Show a model's inputs, outputs and configuration
    Show {
        /// The model's name
        name: String,
    },
    /// Delete a model
    Delete {
        /// The model's name
        name: String,
    },
}

#[derive(Args)]
struct Configure {
    /// The model's name
    name: String,
    /// How long its graph stays in memory after its last use, such as 5m
    #[arg(long, value_name = "TIME")]
    keep_alive: Option<String>,
    /// How long it stays in host memory after its last move to a GPU, such as 10m
    #[arg(long, value_name = "TIME")]
    host_keep_alive: Option<String>,
    /// Whether its graph stays for good once it is loaded
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pin: Option<bool>,
    /// How long its graph is in memory, at least, before it makes room for others
    #[arg(long, value_name = "TIME")]
    min_resident: Option<String>,
    /// The most rows that ride in one batch; 1 for none
    #[arg(long, value_name = "ROWS")]
    max_batch: Option<u64>,
    /// How long the first inference of a batch may wait for others, such as 2ms
    #[arg(long, value_name = "TIME")]
    max_queue_delay: Option<String>,
    /// Numbers of rows that a batch should have, such as 4,8
    #[arg(long, value_name = "ROWS", value_delimiter = ',')]
    preferred_batch_sizes: Option<Vec<u64>>,
    /// Whether a batch is filled up with zeros to the next preferred number of rows
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    padding: Option<bool>,
    /// Whose functions find it: private or public
    #[arg(long)]
    visibility: Option<String>,
    /// Begin with the defaults, not with what was set before
    #[arg(long)]
    reset: bool,
}

impl Configure {
    async fn run(self, context: &Context) -> Result<Value, Failure> {
        let client = &context.client;
        let path = format!("/v1/models/{}", self.name);
        let before = match self.reset {
            true => Value::Null,
            false => client.get(&path).await?.at("config").clone(),
        };
        let config = output::lay_over(
            &before,
            [
                ("keep_alive", self.keep_alive.map(Value::from)),
                ("host_keep_alive", self.host_keep_alive.map(Value::from)),
                ("pin", self.pin.map(Value::from)),
                ("min_resident", self.min_resident.map(Value::from)),
                ("max_batch", self.max_batch.map(Value::from)),
                ("max_queue_delay", self.max_queue_delay.map(Value::from)),
                ("preferred_batch_sizes", self.preferred_batch_sizes.map(Value::from)),
                ("padding", self.padding.map(Value::from)),
                ("visibility", self.visibility.map(Value::from)),
            ],
        );
        client.json(client.request(Method::PUT, &format!("{path}/config")).json(&config)).await
    }
}

impl Models {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = &context.client;
        match self.action.unwrap_or(Action::List) {
            Action::List => {
                let listed = client.list("/v1/models", "models").await?;
                if context.json {
                    output::json(&listed);
                } else {
                    table(list(listed.at("models")));
                }
            }
            Action::Put { name, file, format } => {
                let upload = Upload::open(&file).await?;
                let bytes = upload.bytes;
                let (body, bar) = upload.body("preparing");
                let request = client.request(Method::PUT, &format!("/v1/models/{name}"));
                let request =
                    request.query(&[("format", format)]).header(header::CONTENT_LENGTH, bytes).body(body);
                let put = client.json(request).await;
                bar.finish_and_clear();
                show(context, &put?);
            }
            Action::Configure(configure) => show(context, &configure.run(context).await?),
            Action::Show { name } => show(context, &client.get(&format!("/v1/models/{name}")).await?),
            Action::Delete { name } => {
                client.json(client.request(Method::DELETE, &format!("/v1/models/{name}"))).await?;
                if !context.json {
                    output::line(format!("{name} is deleted"));
                }
            }
        }
        Ok(())
    }
}

fn table(models: &[Value]) {
    if models.is_empty() {
        output::line("no models yet: upload one with `weir models put NAME FILE`");
        return;
    }
    output::table(
        ["MODEL", "FORMAT", "SIZE", "DIGEST", "VISIBILITY", "IN MEMORY"],
        models.iter().map(|model| {
            let held =
                list(model.at("resident")).iter().map(|held| text(held.at("device"))).collect::<Vec<_>>();
            let held = if held.is_empty() { "-".to_owned() } else { held.join(", ") };
            [
                text(model.at("model")),
                text(model.at("format")),
                size(model.at("bytes")),
                digest(model.at("digest")),
                text(model.at("visibility")),
                held,
            ]
        }),
    );
}

fn show(context: &Context, model: &Value) {
    if context.json {
        output::json(model);
        return;
    }
    output::line(format!(
        "{} ({}, {}, {})",
        text(model.at("model")),
        text(model.at("format")),
        size(model.at("bytes")),
        digest(model.at("digest"))
    ));
    for (side, field) in [("input", "inputs"), ("output", "outputs")] {
        for spec in list(model.at(field)) {
            let shape: Vec<String> = list(spec.at("shape")).iter().map(text).collect();
            output::line(format!(
                "  {side} {}: {} [{}]",
                text(spec.at("name")),
                text(spec.at("dtype")),
                shape.join(", ")
            ));
        }
    }
    for (field, value) in model.at("config").as_object().into_iter().flatten() {
        let value = if value.is_null() { "the operator's".to_owned() } else { text(value) };
        output::line(format!("  {field} = {value}"));
    }
}
