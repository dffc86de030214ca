//! `steadfast config`: looks at configuration files, and serves nothing.

use std::io::{self, Write as _};

use crate::cli::Config;
use crate::failure::Failure;
use crate::{config, world};

/// Every key, with explanations. The tests hold it to the schema.
const EXAMPLE: &str = include_str!("../../../docs/steadfast.toml");

pub(crate) fn run(what: &Config) -> Result<(), Failure> {
    let text = match what {
        Config::Schema => format!("{:#}\n", config::schema()),
        Config::Example => EXAMPLE.to_owned(),
        Config::Check { file } => {
            let source = world::source(Some(file))?;
            let plan = config::load(&source, &[], &world::world()).map_err(Failure::Config)?;
            if !plan.warnings.is_empty() {
                return Err(Failure::Config(plan.warnings));
            }
            let mut text = format!("{}: fine, {} endpoint(s)\n", source.name, plan.endpoints.len());
            for endpoint in &plan.endpoints {
                text += &format!("  {}  id = {:?}\n", endpoint.path, endpoint.identity.name());
            }
            text
        }
    };
    // A reader that has seen enough closes the pipe.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}
