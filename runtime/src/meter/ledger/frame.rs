//! Frames, of which a segment is made:
//!
//! ```text
//! length of the payload   4 bytes, little-endian
//! CRC-32                  4 bytes, little-endian; of the length's bytes and the payload (crc32fast, as in zip and PNG)
//! payload                 one JSON object
//! ```
//!
//! A frame that a crash has cut off is the last thing in its file: no whole one comes after it. A frame that is wrong and has
//! whole ones after it was whole once.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes of a frame before its payload.
const HEAD: usize = 8;

/// The largest payload that is written. One of a million tenants' heads is smaller.
const MOST: usize = 256 << 20;

/// Empties `frame`, for a payload to be put behind what is in it then.
pub fn begin(frame: &mut Vec<u8>) {
    frame.clear();
    frame.extend_from_slice(&[0; HEAD]);
}

/// Gives a frame its length and its CRC.
///
/// # Errors
/// For a payload that is too large.
pub fn end(frame: &mut [u8]) -> io::Result<()> {
    let whole = frame.split_first_chunk_mut::<HEAD>();
    let (head, payload) = whole.ok_or_else(|| io::Error::other("a frame has no head"))?;
    let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= MOST);
    let length = length.ok_or_else(|| io::Error::other("a frame is too large"))?.to_le_bytes();
    let crc = crc(length, payload).to_le_bytes();
    let (at, rest) = head.split_at_mut(4);
    at.copy_from_slice(&length);
    rest.copy_from_slice(&crc);
    Ok(())
}

fn crc(length: [u8; 4], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&length);
    crc.update(payload);
    crc.finalize()
}

/// The length and the CRC that a head has.
fn head(bytes: [u8; HEAD]) -> ([u8; 4], usize, u32) {
    let [a, b, c, d, rest @ ..] = bytes;
    let length = [a, b, c, d];
    (length, usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX), u32::from_le_bytes(rest))
}

/// The frames of a file, in order.
pub struct Frames {
    path: PathBuf,
    file: BufReader<File>,
    at: u64,
    end: u64,
    payload: Vec<u8>,
}

/// Why there is no next frame.
#[derive(Debug, thiserror::Error)]
pub enum Bad {
    /// The file cannot be read.
    #[error("{} cannot be read: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    /// What begins there is no whole frame, and nothing whole comes after it.
    #[error("{} ends in a part of a frame, at byte {at}", path.display())]
    Torn { path: PathBuf, at: u64 },
    /// What is there is not what was written.
    #[error("{} is damaged at byte {at}: {why}", path.display())]
    Damaged { path: PathBuf, at: u64, why: String },
}

impl Frames {
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Bad> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (end, file) = opened.map_err(|error| Bad::Read { path: path.to_owned(), error })?;
        let file = BufReader::with_capacity(64 << 10, file);
        Ok(Self { path: path.to_owned(), file, at: 0, end, payload: Vec::new() })
    }

    /// Reads no further than `end` bytes: what comes after may be under way.
    pub fn until(self, end: u64) -> Self {
        Self { end: self.end.min(end), ..self }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next frame begins, in bytes.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Goes on with the frame that begins there. One that is behind stays.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn skip_to(&mut self, at: u64) -> Result<(), Bad> {
        let ahead = at.saturating_sub(self.at);
        let skipped = self.file.seek_relative(i64::try_from(ahead).unwrap_or(i64::MAX));
        skipped.map_err(|error| self.unread(error))?;
        self.at = self.at.saturating_add(ahead);
        Ok(())
    }

    /// The next payload; none at the end of the file.
    ///
    /// # Errors
    /// What is there instead. A file that is wrong gives nothing more.
    pub fn next(&mut self) -> Result<Option<&[u8]>, Bad> {
        let left = self.end.saturating_sub(self.at);
        if left == 0 {
            return Ok(None);
        }
        match self.read(left) {
            Ok(true) => {
                self.at += (HEAD + self.payload.len()) as u64;
                Ok(Some(&self.payload))
            }
            Ok(false) => Err(self.wrong()),
            Err(error) => Err(self.unread(error)),
        }
    }

    /// Whether the next frame, which is in so many bytes, is whole.
    fn read(&mut self, left: u64) -> io::Result<bool> {
        let mut bytes = [0; HEAD];
        if left < HEAD as u64 {
            return Ok(false);
        }
        self.file.read_exact(&mut bytes)?;
        let (length, payload, crc) = head(bytes);
        if payload as u64 > left - HEAD as u64 || payload > MOST {
            return Ok(false);
        }
        self.payload.resize(payload, 0);
        self.file.read_exact(&mut self.payload)?;
        Ok(self::crc(length, &self.payload) == crc)
    }

    fn wrong(&mut self) -> Bad {
        let (path, at) = (self.path.clone(), self.at);
        self.end = self.at;
        match whole_after(&path, at) {
            Ok(None) => Bad::Torn { path, at },
            Ok(Some(next)) => {
                let why = format!("no frame begins there, and the next whole one is at byte {next}");
                Bad::Damaged { path, at, why }
            }
            Err(error) => Bad::Read { path, error },
        }
    }

    fn unread(&mut self, error: io::Error) -> Bad {
        self.end = self.at;
        Bad::Read { path: self.path.clone(), error }
    }
}

/// Where in a file the first whole frame after this byte begins.
///
/// # Errors
/// When the file cannot be read.
pub fn whole_after(path: &Path, at: u64) -> io::Result<Option<u64>> {
    use std::os::unix::fs::FileExt;
    let file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len().saturating_sub(at)).unwrap_or(usize::MAX);
    let mut rest = vec![0; length];
    file.read_exact_at(&mut rest, at)?;
    let is_whole = |from: &&[u8]| {
        let Some((bytes, after)) = from.split_first_chunk::<HEAD>() else { return false };
        let (length, payload, crc) = head(*bytes);
        // Before its CRC is made, which takes its while, it must look like one.
        let payload = after.get(..payload).filter(|payload| payload.starts_with(b"{\""));
        payload.is_some_and(|payload| self::crc(length, payload) == crc)
    };
    let mut froms = (1..length).filter_map(|skip| rest.get(skip..));
    let next = froms.find(is_whole).map(|from| length - from.len());
    Ok(next.map(|next| at + next as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: &str) -> Vec<u8> {
        let mut frame = vec![];
        begin(&mut frame);
        frame.extend_from_slice(payload.as_bytes());
        end(&mut frame).unwrap();
        frame
    }

    /// The payloads of a file, and what ends it.
    fn read(bytes: &[u8]) -> (Vec<String>, Option<Bad>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let mut frames = Frames::open(file.path()).unwrap();
        let mut payloads = vec![];
        loop {
            match frames.next() {
                Ok(Some(payload)) => payloads.push(String::from_utf8(payload.to_vec()).unwrap()),
                Ok(None) => return (payloads, None),
                Err(bad) => return (payloads, Some(bad)),
            }
        }
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        let whole = [frame("{\"a\":1}"), frame("{\"b\":2}")].concat();
        let (payloads, bad) = read(&whole);
        assert_eq!((payloads, bad.is_none()), (vec!["{\"a\":1}".to_owned(), "{\"b\":2}".to_owned()], true));
        assert_eq!(read(&[]).0, Vec::<String>::new());
    }

    #[test]
    fn a_part_of_a_frame_at_the_end_is_torn() {
        let (first, last) = (frame("{\"a\":1}"), frame("{\"b\":2}"));
        for cut in 1..last.len() {
            let (payloads, bad) = read(&[&first[..], &last[..cut]].concat());
            assert_eq!(payloads.len(), 1);
            assert!(matches!(bad, Some(Bad::Torn { at, .. }) if at == first.len() as u64), "{cut}");
        }
        // What a power cut leaves of a page that was not written.
        let (_, bad) = read(&[&first[..], &[0; 4096]].concat());
        assert!(matches!(bad, Some(Bad::Torn { .. })));
    }

    #[test]
    fn a_wrong_bit_before_the_last_frame_is_damage_wherever_it_is() {
        let (first, last) = (frame("{\"a\":1}"), frame("{\"b\":2}"));
        for bit in 0..first.len() * 8 {
            let mut bytes = [&first[..], &last[..]].concat();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (payloads, bad) = read(&bytes);
            assert!(payloads.is_empty(), "{bit}");
            let bad = bad.unwrap();
            assert!(matches!(bad, Bad::Damaged { at: 0, .. }), "{bit}: {bad}");
            assert!(bad.to_string().contains(&format!("the next whole one is at byte {}", first.len())));
        }
    }
}
