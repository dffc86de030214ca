//! Starts a gateway in front of the server of a scenario.

use std::error::Error;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A running gateway. It is killed when this value is dropped.
pub(crate) struct Gateway {
    child: Child,
    url: String,
    /// Kept open, so that the gateway never writes to a closed pipe.
    _stdout: BufReader<ChildStdout>,
}

impl Gateway {
    pub(crate) fn start(program: &OsStr, upstream: &str) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(program)
            .args(["serve", "--upstream", upstream, "--store", "memory:", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut line = String::new();
        // The first URL in the output is the address of the gateway.
        while !line.contains("http://") {
            line.clear();
            if stdout.read_line(&mut line)? == 0 {
                return Err("the gateway did not start".into());
            }
        }
        let url =
            line.split_whitespace().find(|word| word.starts_with("http://")).ok_or("no address")?.to_owned();
        Ok(Self { child, url, _stdout: stdout })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Fails if the gateway has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
