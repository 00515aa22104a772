//! Signatures of components: Ed25519 (RFC 8032) by a key of the tenant's.
//!
//! What is signed is a line that says what it is, and the component's SHA-256 in lower-case hex, with no line feed at the
//! end: `weir component v1`, a line feed, 64 digits. A signature is about bytes alone: not about a function's name, its
//! configuration, or when it was made.
//!
//! Keys are read as `openssl` writes them: PKCS#8 and SubjectPublicKeyInfo (RFC 8410) in PEM.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};

/// What comes before the 32 bytes of a key. Source: RFC 8410, sections 4 and 7, in DER.
const PUBLIC_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const SECRET_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A key that signatures are checked with. As text it is PEM, or the base64 between a PEM's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

/// A tenant's public key, with the name that revisions show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedKey {
    pub name: String,
    pub public_key: PublicKey,
}

/// A signature that somebody claims. As text it is base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

/// A key that makes signatures.
pub struct SecretKey(Ed25519KeyPair);

/// What a signature is over.
fn message(digest: &str) -> String {
    format!("weir component v1\n{digest}")
}

/// A component's digest, as deploys show it without `sha256:`.
pub fn digest(component: &[u8]) -> String {
    hex::encode(Sha256::digest(component))
}

impl PublicKey {
    /// # Errors
    /// A sentence that says what a public key looks like.
    pub fn parse(text: &str) -> Result<Self, String> {
        let der = match SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes()) {
            Ok(der) => der.to_vec(),
            Err(_) => STANDARD.decode(text.trim()).unwrap_or_default(),
        };
        let key = der.strip_prefix(&PUBLIC_HEAD).and_then(|key| key.try_into().ok());
        key.map(Self).ok_or_else(|| {
            "this is no public key of Ed25519 (PEM, as `openssl pkey -pubout` writes it, or its base64)"
                .to_owned()
        })
    }

    pub fn pem(&self) -> String {
        pem("PUBLIC KEY", &self.der())
    }

    fn der(&self) -> Vec<u8> {
        [&PUBLIC_HEAD[..], &self.0].concat()
    }

    /// Whether the key made this signature of the component with this digest.
    pub fn verifies(&self, signature: &Signature, digest: &str) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message(digest).as_bytes(), &signature.0).is_ok()
    }
}

impl Signature {
    /// # Errors
    /// A sentence that says what a signature looks like.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = STANDARD.decode(text.trim()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| "this is no signature (the base64 of 64 bytes)".to_owned())
    }

    pub fn base64(&self) -> String {
        STANDARD.encode(self.0)
    }
}

impl SecretKey {
    /// # Errors
    /// A sentence that says what a private key looks like.
    pub fn parse(text: &str) -> Result<Self, String> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).ok();
        // What `openssl` writes has no public key beside the private one to check it against.
        let pair =
            der.and_then(|der| Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der()).ok());
        pair.map(Self).ok_or_else(|| {
            "this is no private key of Ed25519 (PEM, as `openssl genpkey -algorithm ed25519` writes it)"
                .to_owned()
        })
    }

    /// A new key: its PEM.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn generate() -> Result<String, String> {
        let secret = crate::random::<32>().map_err(|error| error.to_string())?;
        Ok(pem("PRIVATE KEY", &[&SECRET_HEAD[..], &secret].concat()))
    }

    /// # Errors
    /// When the key's public half is not 32 bytes, which no key of Ed25519 has.
    pub fn public(&self) -> Result<PublicKey, String> {
        let bytes = self.0.public_key().as_ref().try_into();
        bytes.map(PublicKey).map_err(|_| "the key has no public half".to_owned())
    }

    /// # Errors
    /// When the signature is not 64 bytes, which no signature of Ed25519 is.
    pub fn sign(&self, digest: &str) -> Result<Signature, String> {
        let bytes = self.0.sign(message(digest).as_bytes()).as_ref().try_into();
        bytes.map(Signature).map_err(|_| "the key gave no signature".to_owned())
    }
}

/// A key of 48 bytes or less in PEM, which is one line. Source: RFC 7468.
fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(self.der()))
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `openssl genpkey -algorithm ed25519`, `openssl pkey -pubout` and `openssl pkeyutl -sign -rawin` wrote.
    const SECRET: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIDd28HRR3s+STqUnvHPml3sqUt3Y/jgIf92ddwxv2b+k\n-----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAhvmhUUF7g/RjddLbDgqnmqPwBlQZWRRL4XvH4XAWlRA=\n-----END PUBLIC KEY-----\n";
    const SIGNED: &str =
        "G3CCLxdnw6pBu96VJyV0ZMgenPv27dwbFWnrGnThGBfSddiSEIGaKhSHSwu2k0gKXwPxChvy0HEFSI4UurelBw==";

    #[test]
    fn keys_and_signatures_are_those_of_openssl() {
        let secret = SecretKey::parse(SECRET).unwrap();
        let public = PublicKey::parse(PUBLIC).unwrap();
        assert_eq!(secret.public().unwrap(), public);
        assert_eq!(public.pem(), PUBLIC);
        let of = digest(b"abc");
        assert_eq!(of, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(secret.sign(&of).unwrap().base64(), SIGNED);
        assert!(public.verifies(&Signature::parse(SIGNED).unwrap(), &of));
    }

    #[test]
    fn another_key_other_bytes_and_a_changed_signature_fail() {
        let secret = SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
        let other = SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
        let of = digest(b"abc");
        let signature = secret.sign(&of).unwrap();
        let public = secret.public().unwrap();
        assert!(public.verifies(&signature, &of));
        assert!(!other.public().unwrap().verifies(&signature, &of));
        assert!(!public.verifies(&signature, &digest(b"abd")));
        let mut changed = signature;
        changed.0[63] ^= 1;
        assert!(!public.verifies(&changed, &of));
        // A signature of the bare digest says nothing about a component.
        let bare = Signature(secret.0.sign(of.as_bytes()).as_ref().try_into().unwrap());
        assert!(!public.verifies(&bare, &of));
    }

    #[test]
    fn what_is_no_key_or_signature_is_said_so() {
        assert!(PublicKey::parse("").unwrap_err().contains("no public key"));
        assert!(PublicKey::parse(SECRET).unwrap_err().contains("no public key"));
        assert!(PublicKey::parse("AAAA").unwrap_err().contains("no public key"));
        assert!(SecretKey::parse(PUBLIC).is_err_and(|reason| reason.contains("no private key")));
        assert!(Signature::parse("AAAA").unwrap_err().contains("64 bytes"));
        let key: PublicKey = serde_json::from_value(PUBLIC.into()).unwrap();
        let written = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<PublicKey>(&written).unwrap(), key);
    }
}
