//! The journal of a server: a file of the calls that it executes. The journal survives a kill.

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

    /// Appends a line in one write, so that lines of concurrent calls do not mix. If this fails,
    /// the server must not execute the call.
    pub(super) fn record(&self, seen: Seen) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Entry { at: self.clock.now(), seen })?;
        line.push(b'\n');
        (&self.file).write_all(&line)
    }
}
