//! `cargo xtask interop` and `cargo xtask conformance`: builds and starts the interop driver.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use steadfast_test_setup::{Failure, build, execute};

const DRIVER: &str = "steadfast-interop-driver";

/// Runs a command of the driver. The driver prints its own results.
pub(crate) fn run(
    root: &Path,
    command: &str,
    arguments: &[&str],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let target = crate::target()?;
    let logs = target.join("xtask");
    fs::create_dir_all(&logs)?;
    build(root, &[DRIVER], &logs.join("driver-build.log"), out)?;
    out.flush()?;
    let mut driver = Command::new(target.join("debug").join(DRIVER));
    execute(driver.arg(root).arg(&target).arg(command).args(arguments))
}
