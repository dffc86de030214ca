//! `steadfast config`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Check a file without serving it. Ends with 0 if it is fine and with 2 if it is not
    Check { file: PathBuf },
    /// Print the JSON schema of the file
    Schema,
    /// Print a file with everything in it and explanations, to start from
    Example,
}
