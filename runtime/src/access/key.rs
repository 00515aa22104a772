//! Keys: `weir_<id>_<secret>`. The whole is shown once, when it is made; what is kept is who it is, and a hash of the
//! secret. The secret is 256 random bits, so that one round of SHA-256 is as good as many.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Principal, Role};
use crate::name::Name;
use crate::store::Record;

const PREFIX: &str = "weir_";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    pub id: String,
    pub role: Role,
    /// Absent for what concerns all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What its maker calls it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The only functions that it may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<Vec<String>>,
    /// SHA-256 of the secret, lower-case hex.
    pub hash: String,
    /// RFC 3339, as all times here.
    pub created: String,
    /// The key that it was made with; absent for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
}

impl Record for KeyRecord {
    const KIND: &'static str = "keys";

    fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or(weir_gpu::SYSTEM)
    }

    fn name(&self) -> &str {
        &self.id
    }
}

/// What is shown once.
pub struct Token(String);

impl Token {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a text is meant to be a key of ours.
pub fn is_token(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// The id and the secret of a key, if it has the form of one.
pub(super) fn parts(token: &str) -> Option<(&str, &str)> {
    token.strip_prefix(PREFIX)?.split_once('_')
}

/// A key in memory.
#[derive(Debug)]
pub struct Key {
    pub record: KeyRecord,
    pub principal: Principal,
    hash: [u8; 32],
    expires: Option<SystemTime>,
}

/// Whether a key may be used now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    Valid,
    Expired,
    Revoked,
}

impl Key {
    /// # Errors
    /// What of the record is not understood.
    pub fn new(record: KeyRecord) -> anyhow::Result<Self> {
        let mut hash = [0; 32];
        hex::decode_to_slice(&record.hash, &mut hash)?;
        let expires = record.expires.as_deref().map(humantime::parse_rfc3339).transpose()?;
        let tenant = record.tenant.as_deref().map(Name::tenant).transpose().map_err(anyhow::Error::msg)?;
        let principal = Principal {
            key: Some(record.id.as_str().into()),
            role: record.role,
            tenant,
            functions: record.functions.as_deref().map(Into::into),
        };
        Ok(Self { record, principal, hash, expires })
    }

    /// Makes a key, with the record that is to be kept of it.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn make(record: KeyRecord) -> anyhow::Result<(Self, Token)> {
        let (id, secret) =
            (hex::encode(crate::random::<ID_BYTES>()?), hex::encode(crate::random::<SECRET_BYTES>()?));
        let token = Token(format!("{PREFIX}{id}_{secret}"));
        let hash = hex::encode(Sha256::digest(secret.as_bytes()));
        Ok((Self::new(KeyRecord { id, hash, ..record })?, token))
    }

    /// Whether this is its secret. Takes as long for any.
    pub fn is(&self, secret: &str) -> bool {
        let hash: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        hash.ct_eq(&self.hash).into()
    }

    pub fn state(&self, now: SystemTime) -> KeyState {
        if self.record.revoked.is_some() {
            KeyState::Revoked
        } else if self.expires.is_some_and(|expires| expires <= now) {
            KeyState::Expired
        } else {
            KeyState::Valid
        }
    }
}

impl KeyRecord {
    /// What is to become a key, of this role.
    pub fn of(role: Role, tenant: Option<&Name>) -> Self {
        Self {
            id: String::new(),
            role,
            tenant: tenant.map(ToString::to_string),
            label: String::new(),
            functions: None,
            hash: String::new(),
            created: crate::now(),
            created_by: None,
            expires: None,
            revoked: None,
        }
    }

    /// When it has ended, if it has: RFC 3339.
    pub fn ended(&self) -> Option<&str> {
        let expires = self.expires.as_deref().filter(|expires| *expires <= crate::now().as_str());
        self.revoked.as_deref().into_iter().chain(expires).min()
    }

    /// It ends then, if it does not end before.
    pub fn expire_in(&mut self, time: Duration) {
        // Beyond what a calendar of four digits can say, it does not end.
        const LONGEST: Duration = Duration::from_secs(1000 * 365 * 24 * 3600);
        let then = SystemTime::now() + time.min(LONGEST);
        let then = humantime::format_rfc3339_seconds(then).to_string();
        // The same length and zone, so that the texts are in the order of the times.
        self.expires = Some(self.expires.take().map_or(then.clone(), |before| before.min(then)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_by_its_secret_and_kept_without_it() {
        let (key, token) = Key::make(KeyRecord::of(Role::Operator, None)).unwrap();
        let (id, secret) = parts(token.as_str()).unwrap();
        assert_eq!((id, id.len(), secret.len()), (key.record.id.as_str(), 12, 64));
        assert!(is_token(token.as_str()) && key.is(secret));
        assert!(!key.is("") && !key.is(&secret[1..]) && !key.is(&key.record.hash));
        let kept = serde_json::to_string(&key.record).unwrap();
        assert!(!kept.contains(secret), "{kept}");
        let again = Key::new(serde_json::from_str(&kept).unwrap()).unwrap();
        assert!(again.is(secret) && again.record == key.record);
        let (other, _) = Key::make(KeyRecord::of(Role::Operator, None)).unwrap();
        assert!(!other.is(secret) && other.record.id != key.record.id);
    }

    #[test]
    fn a_key_ends_when_it_expires_or_is_revoked() {
        let tenant = Name::tenant("t").unwrap();
        let mut record = KeyRecord::of(Role::Caller, Some(&tenant));
        record.expire_in(Duration::from_secs(60));
        let before = record.expires.clone();
        record.expire_in(Duration::from_secs(3600));
        assert_eq!(record.expires, before, "the sooner end holds");
        let (key, _) = Key::make(record).unwrap();
        let at = |seconds| key.state(SystemTime::now() + Duration::from_secs(seconds));
        assert_eq!([at(0), at(61)], [KeyState::Valid, KeyState::Expired]);
        let revoked = Key::new(KeyRecord { revoked: Some(crate::now()), ..key.record.clone() }).unwrap();
        assert_eq!(revoked.state(SystemTime::now()), KeyState::Revoked);
        let mut endless = KeyRecord::of(Role::Operator, None);
        endless.expire_in(Duration::MAX);
        assert!(Key::make(endless).is_ok());
    }
}
