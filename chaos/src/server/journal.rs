//! What a server has done, in a file that its death does not shorten.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use steadfast_verify::{Entry, Seen};

use crate::clock::Clock;

#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    clock: Clock,
}

impl Journal {
    pub(super) fn open(path: &Path, clock: Clock) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file, clock })
    }

    /// One write for each line, so that lines are whole whoever else writes. What cannot be written down must not be done.
    pub(super) fn note(&self, seen: Seen) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Entry { at: self.clock.now(), seen })?;
        line.push(b'\n');
        (&self.file).write_all(&line)
    }
}
