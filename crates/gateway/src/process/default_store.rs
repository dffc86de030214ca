//! The default session store, a SQLite file in the data folder of the user, and the permissions of
//! store files.

use std::path::Path;

use etcetera::BaseStrategy as _;
use steadfast::StoreUrl;

use super::failure::Failure;

/// Returns the default store. Creates its folder, and removes the permissions of other users from
/// the folder and its files.
pub(crate) fn default_store() -> Result<StoreUrl, Failure> {
    let base = etcetera::choose_base_strategy()
        .map_err(|error| Failure::NoDataFolder { reason: error.to_string() })?;
    let folder = base.data_dir().join("steadfast");
    create(&folder).map_err(|error| Failure::DataFolder { path: folder.clone(), error })?;
    mode::tighten(&folder, 0o700);
    for name in ["sessions.db", "sessions.db-wal", "sessions.db-shm"] {
        mode::tighten(&folder.join(name), 0o600);
    }
    Ok(StoreUrl::Sqlite(folder.join("sessions.db")))
}

/// Logs a warning if every user of the machine can read the store file that the operator has named.
pub(crate) fn warn_if_public(store: &StoreUrl) {
    if let StoreUrl::Sqlite(path) = store
        && mode::is_public(path)
    {
        let remedy = format!("chmod o-rwx {}*", path.display());
        tracing::warn!(store = %path.display(), remedy, "every user of this machine can read the session store");
    }
}

#[cfg(unix)]
fn create(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn create(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)
}

#[cfg(unix)]
mod mode {
    use std::fs::{Permissions, metadata, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    /// Removes the permissions that are not in `mode` from a file, if the file exists.
    pub(super) fn tighten(path: &Path, mode: u32) {
        let Ok(about) = metadata(path) else { return };
        let before = about.permissions().mode() & 0o777;
        if before & !mode == 0 {
            return;
        }
        let (file, before) = (path.display(), format!("{before:o}"));
        match set_permissions(path, Permissions::from_mode(mode)) {
            Ok(()) => {
                tracing::info!(path = %file, before, mode = format!("{mode:o}"), "removed the permissions of other users")
            }
            Err(error) => {
                tracing::warn!(path = %file, before, %error, "cannot remove the permissions of other users")
            }
        }
    }

    pub(super) fn is_public(path: &Path) -> bool {
        metadata(path).is_ok_and(|about| about.permissions().mode() & 0o004 != 0)
    }
}

/// Other systems have no such permissions.
#[cfg(not(unix))]
mod mode {
    use std::path::Path;

    pub(super) fn tighten(_path: &Path, _mode: u32) {}

    pub(super) fn is_public(_path: &Path) -> bool {
        false
    }
}
