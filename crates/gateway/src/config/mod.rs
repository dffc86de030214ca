//! The configuration of the gateway: read from a file, environment variables and flags, checked,
//! and turned into a [`Plan`].
//!
//! Reading is pure. The input is text, the result is a [`Plan`], or every [`ConfigFault`] with its
//! position. Environment variables override the file, and flags override both.

mod check;
mod config_fault;
mod endpoint_identity;
mod file;
mod inputs;
mod parse;
mod plan;
#[cfg(test)]
mod tests;

use toml::Table;

use parse::toml_positions::SourceTree;
use parse::{defaults_table, overrides, unknown_keys};

pub(crate) use config_fault::{ConfigFault, Position};
use file::File;
pub(crate) use file::{
    Auth, CallLimit, DuplicateIds, Durability, EndpointTable, ServerRequestOrder, TimeSpan,
};
pub(crate) use inputs::Environment;
pub(crate) use parse::json_schema::schema;
pub(crate) use parse::overrides::Override;
pub(crate) use plan::{AuthPlan, BackendPlan, EndpointPlan, Plan};

/// The text of a configuration file, and the name that messages use for the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Reads and checks a configuration: first the TOML syntax, then the keys and the type of each
/// value, then what the values mean together. A step runs only if the steps before it found no
/// fault.
pub(crate) fn load(
    source: &Source,
    flags: &[Override],
    environment: &Environment<'_>,
) -> Result<Plan, Vec<ConfigFault>> {
    let (tree, errors) = SourceTree::parse(&source.name, &source.text);
    if !errors.is_empty() {
        return Err(errors.iter().map(|error| toml_fault(&tree, error)).collect());
    }
    let mut overrides = overrides::from_environment(&environment.variables);
    overrides.extend_from_slice(flags);
    let schema = schema();
    let mut faults = unknown_keys::find(&tree, &schema);
    faults.extend(toml::from_str::<File>(&source.text).err().map(|error| toml_fault(&tree, &error)));
    faults.extend(overrides.iter().filter_map(override_fault));
    if !faults.is_empty() {
        return Err(faults);
    }
    // The text was parsed as a `File` above, so it is a table.
    let mut root: Table = toml::from_str(&source.text).unwrap_or_default();
    for each in &overrides {
        each.put(&mut root);
    }
    defaults_table::merge_into_endpoints(&mut root);
    let file: File = match root.try_into() {
        Ok(file) => file,
        Err(error) => return Err(vec![toml_fault(&tree, &error)]),
    };
    check::check(file, &check::Positions { tree: &tree, overrides: &overrides }, environment)
}

/// A syntax error, or a value of the wrong type.
fn toml_fault(tree: &SourceTree<'_>, error: &toml::de::Error) -> ConfigFault {
    let span = error.span().unwrap_or(0..0);
    let what = error.message().trim().replace('\n', ", ");
    let remedy = "see `steadfast config schema`, or `steadfast config example --all`".into();
    ConfigFault { position: tree.position(span.start), key: tree.key_at(&span), what, remedy }
}

/// Reads an override alone, so that a fault in it names the variable or the flag.
fn override_fault(each: &Override) -> Option<ConfigFault> {
    let text = each.alone().to_string();
    let (tree, _) = SourceTree::parse(&each.origin, &text);
    let unknown = unknown_keys::find(&tree, &schema()).pop();
    let wrong_type = || toml::from_str::<File>(&text).err().map(|error| toml_fault(&tree, &error));
    let fault = unknown.or_else(wrong_type)?;
    let key = if fault.key.is_empty() { each.key() } else { fault.key };
    Some(ConfigFault { position: Position::EnvOrFlag(each.origin.clone()), key, ..fault })
}
