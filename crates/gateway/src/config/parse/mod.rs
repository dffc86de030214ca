//! Reads the text of a configuration: positions of keys, unknown keys, overrides, `[defaults]`, and
//! the JSON schema.

pub(super) mod defaults_table;
pub(super) mod json_schema;
pub(super) mod overrides;
pub(super) mod toml_positions;
pub(super) mod unknown_keys;
