//! Reads the configuration file, environment variables and other files of the machine.

use std::path::Path;

use steadfast_client::transport::Tls;

use super::failure::Failure;
use crate::config::{Environment, Source};

/// The largest file that is read. A larger one is probably not the file that was meant.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads the configuration file. Without a file the text is empty.
pub(crate) fn read_source(file: Option<&Path>) -> Result<Source, Failure> {
    let Some(path) = file else { return Ok(Source { name: "(flags)".into(), text: String::new() }) };
    let text = read_file(path).map_err(|error| Failure::ConfigFile { path: path.to_owned(), error })?;
    Ok(Source { name: path.display().to_string(), text })
}

/// The environment of this process.
pub(crate) fn environment() -> Environment<'static> {
    // A variable that is not UTF-8 cannot be a setting.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Environment {
        variables: variables.collect(),
        read_file: &read_file,
        // If the directory was removed, the start of programs fails later with its own error.
        cwd: std::env::current_dir().unwrap_or_default(),
        is_directory: &Path::is_dir,
        is_executable: &is_executable,
        load_tls: &Tls::load,
    }
}

pub(crate) fn read_file(path: &Path) -> std::io::Result<String> {
    let size = std::fs::metadata(path)?.len();
    if size > MAX_FILE_BYTES {
        let message = format!("the file has {size} bytes, more than {MAX_FILE_BYTES}");
        return Err(std::io::Error::other(message));
    }
    std::fs::read_to_string(path)
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// Other systems have no such permission, and add suffixes to the name.
#[cfg(not(unix))]
fn is_executable(_path: &Path) -> bool {
    true
}
