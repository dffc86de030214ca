//! Where the store is: the default one, a file in the user's data folder, and who can read a file.

use std::path::Path;

use etcetera::BaseStrategy as _;
use steadfast::StoreUrl;

use crate::failure::Failure;

/// The default store. Its folder and its files are made private to the user, new or not.
pub(crate) fn default_store() -> Result<StoreUrl, Failure> {
    let base =
        etcetera::choose_base_strategy().map_err(|error| Failure::NoDataFolder { why: error.to_string() })?;
    let folder = base.data_dir().join("steadfast");
    create(&folder).map_err(|error| Failure::DataFolder { path: folder.clone(), error })?;
    mode::tighten(&folder, 0o700);
    for name in ["sessions.db", "sessions.db-wal", "sessions.db-shm"] {
        mode::tighten(&folder.join(name), 0o600);
    }
    Ok(StoreUrl::Sqlite(folder.join("sessions.db")))
}

/// Warns of a file that the operator has named if every user of the machine can read it.
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

    /// Takes from a file, if it exists, the permissions that are not in `mode`.
    pub(super) fn tighten(path: &Path, mode: u32) {
        let Ok(about) = metadata(path) else { return };
        let before = about.permissions().mode() & 0o777;
        if before & !mode == 0 {
            return;
        }
        let (file, before) = (path.display(), format!("{before:o}"));
        match set_permissions(path, Permissions::from_mode(mode)) {
            Ok(()) => {
                tracing::info!(path = %file, before, mode = format!("{mode:o}"), "made private to this user")
            }
            Err(error) => tracing::warn!(path = %file, before, %error, "cannot be made private to this user"),
        }
    }

    pub(super) fn is_public(path: &Path) -> bool {
        metadata(path).is_ok_and(|about| about.permissions().mode() & 0o004 != 0)
    }
}

/// Elsewhere the folder of a user is private by other means.
#[cfg(not(unix))]
mod mode {
    use std::path::Path;

    pub(super) fn tighten(_path: &Path, _mode: u32) {}

    pub(super) fn is_public(_path: &Path) -> bool {
        false
    }
}
