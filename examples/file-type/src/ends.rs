use crate::kinds::BLOCK_BYTES;

/// The first and the last block of bytes that stream by, and their number. Holds at most three blocks.
#[derive(Default)]
pub struct Ends {
    size: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    pub fn push(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        let room = BLOCK_BYTES - self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(BLOCK_BYTES)..]);
        if self.tail.len() > BLOCK_BYTES {
            self.tail.drain(..self.tail.len() - BLOCK_BYTES);
        }
    }

    /// The number of bytes that went by.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The first block: everything, if there was no more than a block.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The last block: everything, if there was no more than a block.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_do_not_depend_on_how_the_bytes_are_cut() {
        let bytes: Vec<u8> = (0..3 * BLOCK_BYTES + 5).map(|i| (i % 251) as u8).collect();
        for size in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, bytes.len()] {
            let bytes = &bytes[..size];
            for piece in [1, 7, BLOCK_BYTES, BLOCK_BYTES + 3, 1 << 20] {
                let mut ends = Ends::default();
                bytes.chunks(piece).for_each(|chunk| ends.push(chunk));
                assert_eq!(ends.size(), size as u64);
                assert_eq!(ends.head(), &bytes[..size.min(BLOCK_BYTES)]);
                assert_eq!(ends.tail(), &bytes[size.saturating_sub(BLOCK_BYTES)..]);
            }
        }
    }
}
