//! What the gateway is told: a file, variables of the environment, and flags, in the order of growing weight.
//!
//! Reading is pure: text in, a [`Plan`] or every [`Fault`] with its place out. [`load`] says in which order.

mod auth;
mod check;
mod defaults;
mod endpoint;
mod fault;
mod file;
mod identity;
mod overrides;
mod plan;
mod schema;
mod secret;
mod setting;
#[cfg(test)]
mod tests;
mod tree;
mod unknown;
mod values;

use toml::Table;

use tree::Tree;

pub(crate) use endpoint::Endpoint as Written;
pub(crate) use fault::{Fault, Place};
pub(crate) use file::File;
pub(crate) use overrides::Override;
pub(crate) use plan::{AuthPlan, Behind, EndpointPlan, Plan};
pub(crate) use schema::schema;
pub(crate) use secret::World;

/// A configuration file: its name, for people, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Reads a configuration: how it is written, which keys it has, what kind the values are, and whether they make sense
/// together. Each step needs the one before.
pub(crate) fn load(source: &Source, flags: &[Override], world: &World<'_>) -> Result<Plan, Vec<Fault>> {
    let (tree, errors) = Tree::read(&source.name, &source.text);
    if !errors.is_empty() {
        return Err(errors.iter().map(|error| of_file(&tree, error)).collect());
    }
    let mut overrides = overrides::of_environment(&world.variables);
    overrides.extend_from_slice(flags);
    let schema = schema();
    let mut faults = unknown::keys(&tree, &schema);
    faults.extend(wrong_kinds(&tree, source));
    faults.extend(overrides.iter().filter_map(wrong_override));
    if !faults.is_empty() {
        return Err(faults);
    }
    // What was readable as a file is readable as a table.
    let mut root: Table = toml::from_str(&source.text).unwrap_or_default();
    for each in &overrides {
        each.put(&mut root);
    }
    defaults::spread(&mut root);
    let file: File = match root.try_into() {
        Ok(file) => file,
        Err(error) => return Err(vec![of_file(&tree, &error)]),
    };
    let written = check::Written { tree: &tree, overrides: &overrides };
    check::check(file, &written, world)
}

/// A mistake in the writing, or a value of the wrong kind.
fn of_file(tree: &Tree<'_>, error: &toml::de::Error) -> Fault {
    let span = error.span().unwrap_or(0..0);
    let what = error.message().trim().replace('\n', ", ");
    let remedy =
        "`steadfast config schema` says what is expected, and `steadfast config example` shows it".into();
    Fault { place: tree.place(span.start), key: tree.key_at(&span), what, remedy }
}

fn wrong_kinds(tree: &Tree<'_>, source: &Source) -> Option<Fault> {
    toml::from_str::<File>(&source.text).err().map(|error| of_file(tree, &error))
}

/// An override is read alone, so that nobody else is blamed for it.
fn wrong_override(each: &Override) -> Option<Fault> {
    let text = each.alone().to_string();
    let (tree, _) = Tree::read(&each.origin, &text);
    let unknown = unknown::keys(&tree, &schema()).pop();
    let wrong = || toml::from_str::<File>(&text).err().map(|error| of_file(&tree, &error));
    let fault = unknown.or_else(wrong)?;
    let key = if fault.key.is_empty() { each.key() } else { fault.key };
    Some(Fault { place: Place::Named(each.origin.clone()), key, ..fault })
}
