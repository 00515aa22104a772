//! Where it is told what was used, hour by hour.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::span;

/// The webhook of closed hours.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookConfig {
    /// Where events are posted, `http://` or `https://`. None are when absent.
    pub url: Option<String>,
    /// A file with the secret that events are signed with: `whsec_` and 24 to 64 bytes in base64. They are not signed when absent.
    pub secret_file: Option<PathBuf>,
    /// Certificates of authorities (PEM) that the receiver's must be of, in place of the public ones.
    pub ca: Option<PathBuf>,
    /// How long the receiver has to answer.
    #[serde(with = "span")]
    pub timeout: Duration,
    /// The most rows of an event. An hour with more has several.
    pub rows: usize,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self { url: None, secret_file: None, ca: None, timeout: Duration::from_secs(10), rows: 1000 }
    }
}

impl WebhookConfig {
    /// Has relative paths begin at a folder.
    pub(super) fn beside(&mut self, folder: &Path) {
        for path in [&mut self.secret_file, &mut self.ca].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }

    /// Checks what no type says.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.timeout.is_zero() || self.rows == 0 {
            return Err("webhook.timeout and webhook.rows must be more than nothing".to_owned());
        }
        if let Some(text) = &self.url
            && super::web(text).is_none()
        {
            let text = text.escape_default();
            return Err(format!("webhook.url: `{text}` is not understood; write it as https://HOST/PATH"));
        }
        Ok(())
    }
}
