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
    /// Show a model's inputs and outputs
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

impl Models {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = &context.client;
        match self.action.unwrap_or(Action::List) {
            Action::List => {
                let listed = client.get("/v1/models").await?;
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
        ["MODEL", "FORMAT", "SIZE", "DIGEST", "IN MEMORY"],
        models.iter().map(|model| {
            let held =
                list(model.at("resident")).iter().map(|held| text(held.at("device"))).collect::<Vec<_>>();
            let held = if held.is_empty() { "-".to_owned() } else { held.join(", ") };
            [
                text(model.at("model")),
                text(model.at("format")),
                size(model.at("bytes")),
                digest(model.at("digest")),
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
}
