//! What a configuration may read besides its own text: environment variables and files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use steadfast_client::transport::{Tls, TlsError, TlsFiles};

/// The machine as far as a configuration can see it. Tests replace it.
pub(crate) struct Environment<'a> {
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) read_file: &'a dyn Fn(&Path) -> std::io::Result<String>,
    /// The directory in which the gateway was started.
    pub(crate) cwd: PathBuf,
    pub(crate) is_directory: &'a dyn Fn(&Path) -> bool,
    pub(crate) is_executable: &'a dyn Fn(&Path) -> bool,
    pub(crate) load_tls: &'a dyn Fn(&TlsFiles) -> Result<Tls, TlsError>,
}

impl Environment<'_> {
    /// Resolves `env:NAME` and `file:PATH`. Returns any other text unchanged. Fails with the
    /// reason.
    pub(crate) fn resolve(&self, text: &str) -> Result<String, String> {
        if let Some(name) = text.strip_prefix("env:") {
            let value = self.variables.get(name).cloned();
            value.ok_or_else(|| format!("the environment variable {name} is not set"))
        } else if let Some(path) = text.strip_prefix("file:") {
            let content = (self.read_file)(Path::new(path)).map_err(|error| format!("{path}: {error}"))?;
            // Editors end a file with a line break, and no secret ends with one.
            Ok(content.trim_end_matches(['\r', '\n']).to_owned())
        } else {
            Ok(text.to_owned())
        }
    }
}
