//! `weir usage`

mod verify;

use clap::{Args, Subcommand};

use super::Context;
use super::client::Failure;

#[derive(Args)]
pub struct Usage {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// See that usage is as it was written and adds up, without a server's help
    Verify(verify::Verify),
}

impl Usage {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self.action {
            Action::Verify(verify) => verify.run(context.json).await,
        }
    }
}
