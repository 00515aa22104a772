//! The binary `weir`: the server, and the commands that talk to one.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
