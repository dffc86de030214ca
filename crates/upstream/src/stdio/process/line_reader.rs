//! Reads the lines that a process writes, in bounded memory.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How much is read at a time. An idle process keeps no larger buffer.
const CHUNK: usize = 8 << 10;

/// Reads lines without their line breaks. The last line needs none.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    reader: R,
    limit: usize,
    buffer: BytesMut,
    /// How much of the buffer is known to contain no line break.
    searched: usize,
    /// The rest of a line that was too long has not arrived yet.
    skipping: bool,
    ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Whole(Bytes),
    /// The beginning of a line that is longer than the limit. The rest of it is skipped.
    TooLong(Bytes),
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(reader: R, limit: usize) -> Self {
        let buffer = BytesMut::new();
        Self { reader, limit, buffer, searched: 0, skipping: false, ended: false }
    }

    /// Returns the next line, or `None` at the end of the output.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.take() {
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(None);
            }
            self.buffer.reserve(CHUNK);
            self.ended = self.reader.read_buf(&mut self.buffer).await? == 0;
        }
    }

    fn take(&mut self) -> Option<Line> {
        loop {
            let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            let (mut line, is_whole) = match end.map(|end| self.searched + end) {
                Some(end) => {
                    let line = self.buffer.split_to(end + 1);
                    (line.freeze().slice(..end), true)
                }
                None if self.ended && !self.buffer.is_empty() => (self.buffer.split().freeze(), true),
                // The extra byte may be the first byte of the line break.
                None if self.buffer.len() > self.limit + 1 || self.skipping => {
                    (self.buffer.split().freeze(), false)
                }
                None => {
                    self.searched = self.buffer.len();
                    return None;
                }
            };
            self.searched = 0;
            if self.skipping {
                self.skipping = !is_whole;
                if is_whole || !line.is_empty() {
                    continue;
                }
                return None;
            }
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            if line.len() <= self.limit && is_whole {
                return Some(Line::Whole(line));
            }
            self.skipping = !is_whole;
            line.truncate(self.limit);
            return Some(Line::TooLong(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads these pieces with a limit of four bytes. Marks lines that were cut.
    async fn check(pieces: &[&str], expect: &[&str]) {
        let mut lines = LineReader::new(reader(pieces), 4);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(match line {
                Line::Whole(text) => String::from_utf8(text.to_vec()).unwrap(),
                Line::TooLong(text) => format!("{}…", String::from_utf8_lossy(&text)),
            });
        }
        assert_eq!(found, expect, "{pieces:?}");
    }

    fn reader(pieces: &[&str]) -> impl AsyncRead + Unpin {
        let pieces: Vec<io::Cursor<Vec<u8>>> =
            pieces.iter().map(|piece| io::Cursor::new(piece.as_bytes().to_vec())).collect();
        let empty: Box<dyn AsyncRead + Unpin> = Box::new(tokio::io::empty());
        pieces.into_iter().rev().fold(empty, |rest, piece| Box::new(piece.chain(rest)))
    }

    #[tokio::test]
    async fn lines_come_however_they_are_cut() {
        check(&["a\nbb\r\n", "\ncc"], &["a", "bb", "", "cc"]).await;
        check(&["a", "b", "\n", "c\n"], &["ab", "c"]).await;
        check(&[], &[]).await;
        check(&["\n"], &[""]).await;
        check(&["1234\n", "1234"], &["1234", "1234"]).await;
        check(&["1234\r", "\n"], &["1234"]).await;
    }

    #[tokio::test]
    async fn long_lines_are_cut_and_their_rest_skipped() {
        check(&["12345\nab\n"], &["1234…", "ab"]).await;
        check(&["12345", "6789", "0\nab\n"], &["1234…", "ab"]).await;
        check(&["12345", "67"], &["1234…"]).await;
        check(&["12345"], &["1234…"]).await;
        check(&["123456"], &["1234…"]).await;
    }
}
