//! `weir sign`: signatures of components, and keys to make them with.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use weir::signature::{self, SecretKey};

use super::client::Failure;
use super::output;

#[derive(Args)]
pub struct Sign {
    /// The component (.wasm); its signature is written beside it, to FILE.wasm.sig
    #[arg(value_name = "FILE", requires = "key", required_unless_present = "generate")]
    component: Option<PathBuf>,
    /// The private key (PEM), of Ed25519
    #[arg(long, value_name = "KEY")]
    key: Option<PathBuf>,
    /// Make a private key and write it to this file, and the public one to KEY.pub
    #[arg(long, value_name = "KEY", conflicts_with_all = ["component", "key"])]
    generate: Option<PathBuf>,
}

impl Sign {
    pub fn run(self) -> Result<(), Failure> {
        match (self.generate, self.component, self.key) {
            (Some(file), ..) => generate(&file),
            (None, Some(component), Some(key)) => sign(&component, &key),
            _ => Err(Failure::Usage("name a component and a key".to_owned())),
        }
    }
}

fn generate(file: &Path) -> Result<(), Failure> {
    let secret = SecretKey::generate().map_err(Failure::Local)?;
    let public = SecretKey::parse(&secret).and_then(|secret| secret.public()).map_err(Failure::Local)?;
    let beside = with(file, ".pub");
    make(file, &secret, 0o600)?;
    make(&beside, &public.pem(), 0o644)?;
    output::line(format!("the private key is in {}, the public one in {}", file.display(), beside.display()));
    Ok(())
}

fn sign(component: &Path, key: &Path) -> Result<(), Failure> {
    let key = read(key, SecretKey::parse)?;
    let bytes = std::fs::read(component).map_err(|error| unreadable(component, &error))?;
    let digest = signature::digest(&bytes);
    let signature = key.sign(&digest).map_err(Failure::Local)?;
    let file = with(component, ".sig");
    std::fs::write(&file, format!("{}\n", signature.base64())).map_err(|error| unwritable(&file, &error))?;
    output::line(format!("the signature of sha256:{digest} is in {}", file.display()));
    Ok(())
}

/// A key or a signature from its file.
pub fn read<T>(file: &Path, parse: fn(&str) -> Result<T, String>) -> Result<T, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
    parse(&text).map_err(|reason| Failure::Usage(format!("{}: {reason}", file.display())))
}

/// Writes a file that is not there yet: a key that is lost cannot be made again.
fn make(file: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
    made.and_then(|mut made| made.write_all(text.as_bytes())).map_err(|error| unwritable(file, &error))
}

fn with(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

pub fn unreadable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{} cannot be read: {error}", file.display()))
}

fn unwritable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{} cannot be written: {error}", file.display()))
}
