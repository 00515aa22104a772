//! The binary `weir`: the server, and the commands that talk to one.

mod cli;

/// Tensors and bodies come and go in all sizes on all threads. The system's allocator keeps what they leave between them:
/// under hostile traffic that grew without coming to an end.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
