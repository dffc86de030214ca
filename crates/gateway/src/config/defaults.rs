//! `[defaults]`: what holds for every endpoint that does not say otherwise, as far as it can.

use toml::{Table, Value};

/// What concerns servers that are reached over HTTP, and nobody else.
const OF_HTTP: [&str; 5] = ["headers", "standalone", "ca", "client_certificate", "client_key"];

/// Each endpoint gets the defaults that it does not speak of itself.
pub(super) fn spread(root: &mut Table) {
    let Some(Value::Table(defaults)) = root.get("defaults").cloned() else { return };
    let Some(Value::Array(endpoints)) = root.get_mut("endpoint") else { return };
    for endpoint in endpoints {
        if let Value::Table(endpoint) = endpoint {
            let fitting = fitting(defaults.clone(), endpoint);
            fill(endpoint, &fitting);
        }
    }
}

/// The defaults that mean something to an endpoint. What it says itself and cannot have is a fault, and what is said for all is not.
/// `auth` is not left out for anybody: an endpoint that cannot do as it says would be open to everybody.
fn fitting(mut defaults: Table, endpoint: &Table) -> Table {
    if endpoint.contains_key("stdio") {
        defaults.retain(|key, _| !OF_HTTP.contains(&key));
    }
    // It gets the clients' own.
    if endpoint.get("auth").and_then(Value::as_str) == Some("forward")
        && let Some(Value::Table(headers)) = defaults.get_mut("headers")
    {
        headers.retain(|name, _| !name.eq_ignore_ascii_case("authorization"));
    }
    defaults
}

fn fill(table: &mut Table, from: &Table) {
    for (key, value) in from {
        match (table.get_mut(key), value) {
            (Some(Value::Table(inner)), Value::Table(more)) => fill(inner, more),
            (Some(_), _) => {}
            (None, value) => drop(table.insert(key.clone(), value.clone())),
        }
    }
}
