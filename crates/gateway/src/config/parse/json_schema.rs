//! The JSON schema of the file. Editors complete from it, and [`unknown_keys`](super::unknown_keys)
//! checks against it.

use serde_json::Value;

use crate::config::file::File;

/// Returns the schema as JSON Schema 2020-12.
pub(crate) fn schema() -> Value {
    schemars::schema_for!(File).to_value()
}

/// Returns the schema of the value of a key, or `None` for an unknown key.
pub(crate) fn property<'a>(root: &'a Value, node: &'a Value, key: &str) -> Option<&'a Value> {
    let node = resolve(root, node);
    match node.get("properties").and_then(|properties| properties.get(key)) {
        Some(found) => Some(found),
        // A table with arbitrary keys, such as `headers`.
        None => node.get("additionalProperties").filter(|rest| !rest.is_boolean()),
    }
}

/// Returns the keys of a table, or `None` if `node` is not a table with fixed keys.
pub(crate) fn keys<'a>(root: &'a Value, node: &'a Value) -> Option<Vec<&'a str>> {
    let properties = resolve(root, node).get("properties")?.as_object()?;
    Some(properties.keys().map(String::as_str).collect())
}

pub(crate) fn items<'a>(root: &'a Value, node: &'a Value) -> Option<&'a Value> {
    resolve(root, node).get("items")
}

/// Follows references, and takes the first alternative of an optional table.
fn resolve<'a>(root: &'a Value, mut node: &'a Value) -> &'a Value {
    loop {
        if let Some(name) = node.get("$ref").and_then(|link| link.as_str()?.strip_prefix("#/$defs/")) {
            match root.get("$defs").and_then(|defs| defs.get(name)) {
                Some(next) => node = next,
                None => return node,
            }
        } else if let Some(some) =
            node.get("anyOf").and_then(|any| any.as_array()?.iter().find(|it| it.get("$ref").is_some()))
        {
            node = some;
        } else {
            return node;
        }
    }
}
