//! The files of the ledger: `{number}.log`, in order, each so large at most.
//!
//! The first frame of each has the newest record of every tenant before it, so that those before it can be removed, and what
//! is left can still be verified.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::chain::Heads;
use super::frame;

/// The newest layout that this version knows.
pub const FORMAT: u32 = 1;

const ENDING: &str = ".log";

/// What the first frame of a segment says.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opening {
    pub format: u32,
    pub segment: u64,
    /// The time of the newest record before it; 0 if there is none.
    pub time: u64,
    /// The newest record of each tenant before it.
    pub heads: Heads,
    /// Whether the log begins anew with it: what was written before is not all there. `time` is that of this beginning then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
}

/// A segment that is written.
pub struct Segment {
    pub number: u64,
    pub file: Arc<File>,
    /// Bytes up to the end of its last frame.
    pub length: u64,
    /// Whether there is a record in it.
    pub has_records: bool,
}

impl Segment {
    /// Makes a segment with its first frame. What a try before this has left there is overwritten.
    ///
    /// # Errors
    /// When the disk does not take it; nothing of it is left then, if it can be helped.
    pub fn create(folder: &Path, opening: &Opening) -> io::Result<Self> {
        let (path, mut first) = (path(folder, opening.segment), Vec::new());
        frame::begin(&mut first);
        serde_json::to_writer(&mut first, opening)?;
        frame::end(&mut first)?;
        let mut private = OpenOptions::new();
        let file = private.create(true).truncate(true).read(true).write(true).mode(0o600).open(&path)?;
        if let Err(error) = (&file).write_all(&first) {
            drop(fs::remove_file(&path));
            return Err(error);
        }
        let (number, length) = (opening.segment, first.len() as u64);
        Ok(Self { number, file: Arc::new(file), length, has_records: false })
    }

    /// Goes on with a segment whose last frame ends there. What is behind it is cut off.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn reopen(folder: &Path, number: u64, length: u64, has_records: bool) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path(folder, number))?;
        if file.metadata()?.len() != length {
            file.set_len(length)?;
            file.sync_all()?;
        }
        Ok(Self { number, file: Arc::new(file), length, has_records })
    }

    /// Puts a frame behind the last one: all of it, or none that counts.
    ///
    /// # Errors
    /// When the disk does not take it. What it took is overwritten by the next frame, and is no whole one.
    pub fn put(&mut self, frame: &[u8], write: Put) -> io::Result<()> {
        let mut left = frame;
        let mut at = self.length;
        while !left.is_empty() {
            match write(&self.file, left, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    left = left.get(written..).unwrap_or_default();
                    at += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Best effort: a start would cut it off as well.
                    drop(self.file.set_len(self.length));
                    return Err(error);
                }
            }
        }
        self.length = at;
        Ok(())
    }
}

/// How a frame is written at a place of a file. Tests have disks that are full.
pub type Put = fn(&File, &[u8], u64) -> io::Result<usize>;

/// As the system does it.
pub fn write(file: &File, bytes: &[u8], at: u64) -> io::Result<usize> {
    file.write_at(bytes, at)
}

/// Where a segment is.
pub fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:016}{ENDING}"))
}

/// The segments that there are, oldest first.
///
/// # Errors
/// When the folder cannot be read.
pub fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(ENDING)?.parse().ok());
        // One that is written in another way would not be found by its number.
        numbers.extend(number.filter(|number| path(folder, *number).ends_with(&name)));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
