//! What is read from outside to understand a configuration: the file, the environment, and files that it names.

use std::path::Path;

use steadfast_client::transport::Tls;

use crate::config::{Source, World};
use crate::failure::Failure;

/// The largest file that is read. Nobody writes so much; somebody may name the wrong file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The configuration file, or one that says nothing.
pub(crate) fn source(file: Option<&Path>) -> Result<Source, Failure> {
    let Some(path) = file else { return Ok(Source { name: "(flags)".into(), text: String::new() }) };
    let text = read(path).map_err(|error| Failure::ConfigFile { path: path.to_owned(), error })?;
    Ok(Source { name: path.display().to_string(), text })
}

pub(crate) fn world() -> World<'static> {
    // What is not text is nobody's setting.
    let texts = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    World {
        variables: texts.collect(),
        read: &read,
        // A folder that was removed meanwhile is like any other that programs cannot be started in.
        folder: std::env::current_dir().unwrap_or_default(),
        is_folder: &Path::is_dir,
        is_program: &is_program,
        tls: &Tls::load,
    }
}

pub(crate) fn read(path: &Path) -> std::io::Result<String> {
    let size = std::fs::metadata(path)?.len();
    if size > MAX_FILE_BYTES {
        return Err(std::io::Error::other(format!("it has {size} bytes, more than {MAX_FILE_BYTES}")));
    }
    std::fs::read_to_string(path)
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// Elsewhere names have endings that need not be written, and nobody says what can be run.
#[cfg(not(unix))]
fn is_program(_path: &Path) -> bool {
    true
}
