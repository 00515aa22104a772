//! TLS: the certificate and key of this server, read again when their files change.
//!
//! A certificate is renewed by writing the new files in place of the old ones. Connections that are there go on with what
//! they have; the next one gets the new one. Files that do not fit together, or that are not understood, are named in the
//! log, and the server goes on with the ones before.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Where a server's certificate chain and its private key are, in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// When each of the files was last changed.
type Changed = [Option<SystemTime>; 2];

struct Current(RwLock<Arc<CertifiedKey>>);

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// What makes a connection one with TLS. The files are looked at again for as long as the runtime is there.
///
/// # Errors
/// Files that cannot be read, that are not what they should be, or that do not fit together.
pub fn acceptor(files: TlsFiles) -> anyhow::Result<TlsAcceptor> {
    let changed = files.changed();
    let current = Arc::new(Current(RwLock::new(Arc::new(files.read()?))));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(&current) as _);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    tokio::spawn(follow(files, changed, Arc::downgrade(&current)));
    Ok(Arc::new(config).into())
}

async fn follow(files: TlsFiles, mut seen: Changed, current: std::sync::Weak<Current>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(current) = current.upgrade() else { return };
        let changed = files.changed();
        if changed == seen {
            continue;
        }
        seen = changed;
        match files.read() {
            Ok(key) => {
                *current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
                tracing::info!(cert = %files.cert.display(), "there is a new certificate");
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "the new certificate cannot be used; the one before goes on");
            }
        }
    }
}

impl TlsFiles {
    fn changed(&self) -> Changed {
        let changed = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
        [changed(&self.cert), changed(&self.key)]
    }

    fn read(&self) -> anyhow::Result<CertifiedKey> {
        let cert = || format!("the certificate {}", self.cert.display());
        let chain = CertificateDer::pem_file_iter(&self.cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(cert)?;
        anyhow::ensure!(!chain.is_empty(), "{} has no certificate in it", self.cert.display());
        let key = || format!("the key {}", self.key.display());
        let private = PrivateKeyDer::from_pem_file(&self.key).with_context(key)?;
        let pair = CertifiedKey::from_der(chain, private, &ring::default_provider());
        pair.with_context(|| format!("{} and {} do not fit", cert(), key()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path) -> (TlsFiles, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        std::fs::write(&files.cert, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        (files, made.cert.der().to_vec())
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_certificate_takes_the_place_of_the_one_before_and_a_broken_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let (files, first) = write(folder.path());
        let current = Arc::new(Current(RwLock::new(Arc::new(files.read().unwrap()))));
        // As if they had been looked at before they were there.
        tokio::spawn(follow(files.clone(), [None, None], Arc::downgrade(&current)));
        let served = || current.0.read().unwrap().cert[0].to_vec();
        assert_eq!(served(), first);
        let (_, second) = write(folder.path());
        tokio::time::sleep(2 * LOOK_EVERY).await;
        assert_eq!(served(), second);
        std::fs::remove_file(&files.key).unwrap();
        tokio::time::sleep(2 * LOOK_EVERY).await;
        assert_eq!(served(), second);
    }

    #[test]
    fn files_that_are_no_pair_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let (mut files, _) = write(folder.path());
        assert!(files.read().is_ok());
        files.key = write(other.path()).0.key;
        let error = format!("{:#}", files.read().unwrap_err());
        assert!(error.contains("do not fit"), "{error}");
        std::fs::write(&files.cert, "nothing").unwrap();
        assert!(format!("{:#}", files.read().unwrap_err()).contains("has no certificate"));
        files.cert = folder.path().join("nowhere.pem");
        assert!(format!("{:#}", files.read().unwrap_err()).contains("nowhere.pem"));
    }
}
