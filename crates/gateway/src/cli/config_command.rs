//! `steadfast config`: checks configuration files and prints examples. It serves nothing.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Subcommand;

use crate::config;
use crate::process::{Failure, config_inputs};

/// The keys that most configurations need.
pub(crate) const EXAMPLE: &str = include_str!("example.toml");

/// Every key with its default. A test compares it with the schema.
pub(crate) const FULL_EXAMPLE: &str = include_str!("../../../../docs/steadfast.toml");

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a file. Exits with 0 if it has no faults, and with 2 otherwise
    Check { file: PathBuf },
    /// Print the JSON schema of the file
    Schema,
    /// Print an example file with the most important keys
    Example {
        /// Print every key with its default and an explanation
        #[arg(long)]
        all: bool,
    },
}

impl ConfigCommand {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let text = match self {
            Self::Schema => format!("{:#}\n", config::schema()),
            Self::Example { all: false } => EXAMPLE.to_owned(),
            Self::Example { all: true } => FULL_EXAMPLE.to_owned(),
            Self::Check { file } => {
                let source = config_inputs::read_source(Some(file))?;
                let plan =
                    config::load(&source, &[], &config_inputs::environment()).map_err(Failure::Config)?;
                if !plan.warnings.is_empty() {
                    return Err(Failure::Config(plan.warnings));
                }
                let mut text = format!("{}: no faults, {} endpoint(s)\n", source.name, plan.endpoints.len());
                for endpoint in &plan.endpoints {
                    text += &format!("  {}  id = {:?}\n", endpoint.path, endpoint.identity.name());
                }
                text
            }
        };
        // The reader of a pipe may close it early, as `head` does.
        let _ = io::stdout().lock().write_all(text.as_bytes());
        Ok(())
    }
}
