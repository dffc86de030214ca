//! Merges `[defaults]` into the endpoints.

use toml::{Table, Value};

/// Keys that only apply to servers that are reached over HTTP.
const HTTP_ONLY: [&str; 2] = ["headers", "upstream_tls"];

/// Gives each endpoint the defaults that it does not set itself.
pub(crate) fn merge_into_endpoints(root: &mut Table) {
    let Some(Value::Table(defaults)) = root.get("defaults").cloned() else { return };
    let Some(Value::Array(endpoints)) = root.get_mut("endpoint") else { return };
    for endpoint in endpoints {
        if let Value::Table(endpoint) = endpoint {
            let applicable = applicable(defaults.clone(), endpoint);
            merge(endpoint, &applicable);
        }
    }
}

/// Leaves out the defaults that cannot apply to an endpoint. The same value in the endpoint itself
/// would be a fault. `auth` is never left out: the endpoint would be open to every client.
fn applicable(mut defaults: Table, endpoint: &Table) -> Table {
    if endpoint.contains_key("stdio") {
        defaults.retain(|key, _| !HTTP_ONLY.contains(&key));
    }
    // The server gets the credentials of the clients instead.
    if endpoint.get("auth").and_then(Value::as_str) == Some("forward")
        && let Some(Value::Table(headers)) = defaults.get_mut("headers")
    {
        headers.retain(|name, _| !name.eq_ignore_ascii_case("authorization"));
    }
    defaults
}

fn merge(table: &mut Table, from: &Table) {
    for (key, value) in from {
        match (table.get_mut(key), value) {
            (Some(Value::Table(inner)), Value::Table(more)) => merge(inner, more),
            (Some(_), _) => {}
            (None, value) => drop(table.insert(key.clone(), value.clone())),
        }
    }
}
