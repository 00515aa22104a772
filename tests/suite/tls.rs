//! TLS, as the command line meets it: a CA of one's own, and what is said where there is no trust.

use std::path::{Path, PathBuf};
use std::process::Output;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use weir_tests::Process;

/// A CA, and what it signed.
struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Its certificate is in `ca.pem`, its key in `ca.key`.
    fn new(folder: &Path) -> Self {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        std::fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(folder.join("ca.key"), key.serialize_pem()).unwrap();
        Self { folder: folder.to_owned(), issuer: Issuer::new(params, key) }
    }

    /// A server with a certificate for this name.
    async fn serves(&self, name: &str) -> Process {
        let (key, params) =
            (KeyPair::generate().unwrap(), CertificateParams::new(vec![name.to_owned()]).unwrap());
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (cert, private) =
            (self.folder.join(format!("{name}.pem")), self.folder.join(format!("{name}.key")));
        std::fs::write(&cert, certificate.pem()).unwrap();
        std::fs::write(&private, key.serialize_pem()).unwrap();
        serve(&self.folder.join(name), &cert, &private).await
    }
}

async fn serve(data: &Path, cert: &Path, key: &Path) -> Process {
    let mut command = Process::server_of(&Process::binary("weir"), data);
    command.arg("--tls-cert").arg(cert).arg("--tls-key").arg(key);
    Process::start(command).await
}

fn complained(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_trust_a_server_is_told_why_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path());
    let trusts = async |url: &str, ca: &str| {
        let mut words = vec!["functions"];
        words.extend((!ca.is_empty()).then_some(["--ca", ca]).into_iter().flatten());
        Process::run(&words, url, folder.path()).await
    };
    let server = authority.serves("127.0.0.1").await;
    let trusted = trusts(&server.url, "ca.pem").await;
    assert!(trusted.status.success(), "{}", complained(&trusted));

    let elsewhere = authority.serves("weir.example").await;
    let itself =
        serve(&folder.path().join("itself"), &folder.path().join("ca.pem"), &folder.path().join("ca.key"))
            .await;
    let plain = Process::serve(&folder.path().join("plain")).await;
    let refusals = [
        (
            server.url.clone(),
            "",
            3,
            "nobody who is trusted signed its certificate; name the certificate of the CA",
        ),
        (server.url.clone(), "127.0.0.1.key", 2, "127.0.0.1.key cannot be used: it has no certificate in it"),
        (elsewhere.url.clone(), "ca.pem", 3, "answers, but its certificate is for other names"),
        (itself.url.clone(), "ca.pem", 3, "its certificate is a CA's own (CaUsedAsEndEntity)"),
        (server.url.replace("https", "http"), "", 3, "if it serves TLS, write https:// in WEIR_URL"),
        (plain.url.replace("http", "https"), "", 3, "if it serves plain HTTP, write http:// in WEIR_URL"),
    ];
    for (url, ca, code, says) in refusals {
        let output = trusts(&url, ca).await;
        assert_eq!(output.status.code(), Some(code), "{says}: {}", complained(&output));
        assert!(complained(&output).contains(says), "{says}: {}", complained(&output));
        assert!(!complained(&output).contains("does not answer ("), "{}", complained(&output));
    }
}
