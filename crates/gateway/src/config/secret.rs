//! Values that are not in the file: `env:NAME`, `file:PATH`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use steadfast_client::transport::{Tls, TlsError, TlsFiles};

/// What a configuration may look at besides its own text.
pub(crate) struct World<'a> {
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) read: &'a dyn Fn(&Path) -> std::io::Result<String>,
    /// Where the gateway was started.
    pub(crate) folder: PathBuf,
    pub(crate) is_folder: &'a dyn Fn(&Path) -> bool,
    /// A file that can be run.
    pub(crate) is_program: &'a dyn Fn(&Path) -> bool,
    pub(crate) tls: &'a dyn Fn(&TlsFiles) -> Result<Tls, TlsError>,
}

impl World<'_> {
    /// The value that is meant, or why there is none.
    pub(crate) fn secret(&self, written: &str) -> Result<String, String> {
        if let Some(name) = written.strip_prefix("env:") {
            let found = self.variables.get(name).cloned();
            found.ok_or_else(|| format!("the variable {name} is not set"))
        } else if let Some(path) = written.strip_prefix("file:") {
            let text = (self.read)(Path::new(path)).map_err(|error| format!("{path}: {error}"))?;
            // Editors end a file with a line break, and no secret does.
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        } else {
            Ok(written.to_owned())
        }
    }
}
