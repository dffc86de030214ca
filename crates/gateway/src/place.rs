//! The default store: a file in the user's data folder.

use etcetera::BaseStrategy as _;
use steadfast::StoreUrl;

use crate::failure::Failure;

pub(crate) fn default_store() -> Result<StoreUrl, Failure> {
    let base =
        etcetera::choose_base_strategy().map_err(|error| Failure::NoDataFolder { why: error.to_string() })?;
    let folder = base.data_dir().join("steadfast");
    std::fs::create_dir_all(&folder).map_err(|error| Failure::DataFolder { path: folder.clone(), error })?;
    Ok(StoreUrl::Sqlite(folder.join("sessions.db")))
}
