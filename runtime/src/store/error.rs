//! Why the store did not do what was asked. The texts are for the operator's log.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no room, or no more than the server may use.
    #[error("the disk is full: {0}")]
    Full(String),
    /// The disk does not take it now: it is read-only, or it fails.
    #[error("the disk does not take changes: {0}")]
    Unavailable(String),
    /// What is kept cannot be understood, or was asked in a wrong way.
    #[error("{0}")]
    Other(String),
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let text = error.to_string();
        match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Self::Full(text),
            Kind::ReadOnlyFilesystem | Kind::PermissionDenied => Self::Unavailable(text),
            _ if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                Self::Unavailable(text)
            }
            _ => Self::Other(text),
        }
    }
}
