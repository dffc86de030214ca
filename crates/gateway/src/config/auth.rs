//! Who may use an endpoint.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How clients prove who they are. (Tokens that are verified here, with settings of their own, are to come: a variant
/// with a table, `auth = { jwt = { … } }`.)
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Auth {
    /// Not at all: whoever reaches the endpoint may use it.
    #[default]
    None,
    /// The server decides: it gets each client's `Authorization` as it came. A session belongs to those who show the
    /// credentials that it was opened with.
    Forward,
}
