//! The command line. Human tables by default, the server's JSON with `--json`; what goes wrong is a sentence on
//! stderr and an exit code: 0 done, 1 refused or failed, 2 wrong usage, 3 the server cannot be reached.

mod audit;
mod backup;
mod billing;
mod client;
mod deploy;
mod devices;
mod functions;
mod keys;
mod logs;
mod models;
mod new;
mod output;
mod policy;
mod rates;
mod serve;
mod sign;
mod simulate;
mod tenants;
mod top;
mod traffic;
mod unreachable;
mod usage;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use client::{Client, Failure};

#[derive(Parser)]
#[command(name = "weir", version, about = "Serverless inference functions in WebAssembly sandboxes", long_about = None)]
#[command(
    after_help = "Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 the server cannot be reached."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server
    Serve(serve::Serve),
    /// Write a new function's project into a folder of that name
    New(new::New),
    /// Upload a component and make it a function's newest revision
    Deploy(WithServer<deploy::Deploy>),
    /// Call a function and print its answer
    Call(WithServer<functions::Call>),
    /// List functions
    Functions(WithServer<functions::List>),
    /// Show one function: its state, revisions, traffic and cold starts
    Status(WithServer<functions::Status>),
    /// Share a function's traffic out among its revisions
    Traffic(WithServer<traffic::Traffic>),
    /// Give all of a function's traffic to the revision that had it before
    Rollback(WithServer<traffic::Rollback>),
    /// Show a function's log
    Logs(WithServer<logs::Logs>),
    /// List, upload, configure, show or delete models
    Models(WithServer<models::Models>),
    /// List tenants, or set what one may have of the devices
    Tenants(WithServer<tenants::Tenants>),
    /// List, show or set rate cards: what usage costs
    Rates(WithServer<rates::Rates>),
    /// Show or set how a tenant is billed: its rate card, and prices of its own
    Billing(WithServer<billing::Billing>),
    /// List a tenant's credits, or give it one
    Credits(WithServer<billing::Credits>),
    /// Show what a tenant owes for a month
    Invoice(WithServer<billing::Invoice>),
    /// List, make, rotate or revoke keys
    Keys(WithServer<keys::Keys>),
    /// Show who changed what, or verify that nothing of it was altered
    Audit(WithServer<audit::Audit>),
    /// Show what was used, summed up or call by call, or verify it
    Usage(Box<WithServer<usage::Usage>>),
    /// Show the devices: lanes, queue, memory, graphs, and what a GPU would need
    Devices(WithServer<devices::Devices>),
    /// Show who uses the devices, live
    Top(WithServer<top::Top>),
    /// Write a backup of all that the server keeps, while it serves
    Backup(WithServer<backup::Backup>),
    /// Make a new data directory of a backup, without a server
    Restore(backup::Restore),
    /// Delete a function
    Delete(WithServer<functions::Delete>),
    /// Sign a component, or make a key to sign with
    Sign(sign::Sign),
    /// Look at what the operator's policy has against a deploy, without a server
    Policy(policy::Policy),
    /// Print the description of the HTTP surface: OpenAPI 3.1
    Openapi,
    /// Run the scheduler over a trace of arrivals, without a server
    Simulate(simulate::Simulate),
    /// What the server starts itself as, to open an upload
    #[command(hide = true)]
    Prepare { order: String },
}

/// A command that talks to a server.
#[derive(Args)]
struct WithServer<T: Args> {
    #[command(flatten)]
    command: T,
    #[command(flatten)]
    server: Server,
}

#[derive(Args)]
struct Server {
    /// The server's address
    #[arg(long, env = "WEIR_URL", default_value = Server::URL, global = true)]
    url: String,
    /// The tenant that is meant: for a key that is of none; and of `weir call`, for any key, whose function is called, which is
    /// `default` if no tenant is named
    #[arg(long, env = "WEIR_TENANT", global = true)]
    tenant: Option<String>,
    /// The key to send, if the server asks for keys
    #[arg(long, env = "WEIR_TOKEN", hide_env_values = true, global = true)]
    token: Option<String>,
    /// Certificates (PEM) of CAs to trust beside the usual ones, for a server whose certificate such a one signed
    #[arg(long, env = "WEIR_CA", global = true, value_name = "FILE")]
    ca: Option<OsString>,
    /// Print the server's JSON instead of a table, its problem too where it refuses
    #[arg(long, global = true)]
    json: bool,
}

/// What a command that talks to a server is given.
struct Context {
    client: Client,
    json: bool,
}

impl Server {
    const URL: &str = "http://127.0.0.1:7070";

    /// What is empty is as if it were not set.
    fn context(self) -> Result<Context, Failure> {
        let url = if self.url.is_empty() { Self::URL } else { &self.url };
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let ca = self.ca.filter(|file| !file.is_empty()).map(PathBuf::from);
        let (token, tenant) = (set(&self.token), set(&self.tenant));
        Ok(Context {
            client: Client::new(url, token.as_deref(), tenant.as_deref(), ca.as_deref(), self.json)?,
            json: self.json,
        })
    }
}

pub fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Command::Prepare { order } = &cli.command {
        return weir::prepare(order);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::Local(format!("no threads can be started: {error}")).report(),
    };
    let result = runtime.block_on(run(cli.command));
    // A guest that computes on a blocking thread must not keep the process.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(serve) => serve.run().await,
        Command::New(new) => new.run(),
        Command::Deploy(this) => this.command.run(&this.server.context()?).await,
        Command::Call(this) => this.command.run(&this.server.context()?).await,
        Command::Functions(this) => this.command.run(&this.server.context()?).await,
        Command::Status(this) => this.command.run(&this.server.context()?).await,
        Command::Traffic(this) => this.command.run(&this.server.context()?).await,
        Command::Rollback(this) => this.command.run(&this.server.context()?).await,
        Command::Logs(this) => this.command.run(&this.server.context()?).await,
        Command::Models(this) => this.command.run(&this.server.context()?).await,
        Command::Tenants(this) => this.command.run(&this.server.context()?).await,
        Command::Rates(this) => this.command.run(&this.server.context()?).await,
        Command::Billing(this) => this.command.run(&this.server.context()?).await,
        Command::Credits(this) => this.command.run(&this.server.context()?).await,
        Command::Invoice(this) => this.command.run(&this.server.context()?).await,
        Command::Keys(this) => this.command.run(&this.server.context()?).await,
        Command::Audit(this) => this.command.run(&this.server.context()?).await,
        Command::Usage(this) => this.command.run(&this.server.context()?).await,
        Command::Devices(this) => this.command.run(&this.server.context()?).await,
        Command::Top(this) => this.command.run(&this.server.context()?).await,
        Command::Backup(this) => this.command.run(&this.server.context()?).await,
        Command::Restore(restore) => restore.run().await,
        Command::Delete(this) => this.command.run(&this.server.context()?).await,
        Command::Sign(this) => this.run(),
        Command::Policy(this) => this.run(),
        Command::Openapi => {
            output::line(weir::openapi().trim_end());
            Ok(())
        }
        Command::Simulate(this) => this.run(),
        // Done before there are threads.
        Command::Prepare { .. } => Ok(()),
    }
}
