//! The metadata of a request of a stateless revision (2026-07-28): the envelope in `params._meta`,
//! and the member that `Mcp-Name` repeats.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::header_annotations;
use crate::params::{META_CLIENT_CAPABILITIES, META_LOG_LEVEL, META_PROTOCOL_VERSION};

const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Methods that stateless revisions have removed. They must be refused, even if a server still
/// implements them.
const REMOVED_METHODS: [&str; 7] = [
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "tasks/result",
    "tasks/list",
];

/// The metadata of a stateless request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub version: Cow<'a, str>,
    /// The value that `Mcp-Name` must repeat, if the method has one.
    pub name: Option<Cow<'a, str>>,
}

/// Why an envelope is invalid. Every case is an error of the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("params._meta needs {0}")]
    Missing(&'static str),
    #[error("params._meta has a bad {0}")]
    Bad(&'static str),
    #[error("params must be an object whose members are named once")]
    Params,
}

/// Returns true if the parameters belong to a request of a stateless revision: they name their
/// protocol version.
pub fn is_stateless_request(params: &str) -> bool {
    // This search saves nearly every legacy request a second parse. The slash of the key may be
    // escaped in JSON, but the search still finds it.
    params.contains("/protocolVersion")
        && parse(params).is_ok_and(|params| params.meta().is_ok_and(|meta| meta.version.is_some()))
}

/// Reads the envelope of a stateless request.
pub fn read<'a>(method: &str, params: Option<&'a str>) -> Result<Envelope<'a>, EnvelopeError> {
    let params = parse(params.unwrap_or("{}"))?;
    let meta = params.meta()?;
    let version = text(meta.version).ok_or(EnvelopeError::Missing(META_PROTOCOL_VERSION))?;
    if !meta.capabilities.is_some_and(|capabilities| capabilities.get().starts_with('{')) {
        return Err(EnvelopeError::Missing(META_CLIENT_CAPABILITIES));
    }
    if meta.log_level.is_some() && !text(meta.log_level).is_some_and(|level| LOG_LEVELS.contains(&&*level)) {
        return Err(EnvelopeError::Bad(META_LOG_LEVEL));
    }
    let name = match header_annotations::name_member(method) {
        Some("name") => text(params.name),
        Some("uri") => text(params.uri),
        Some("taskId") => text(params.task_id),
        _ => None,
    };
    Ok(Envelope { version, name })
}

/// Returns true if stateless revisions have removed a method of the legacy revisions.
pub fn is_removed(method: &str) -> bool {
    REMOVED_METHODS.contains(&method)
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, rename = "taskId")]
    task_id: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    fn meta(&self) -> Result<Meta<'a>, EnvelopeError> {
        match self.meta.map(RawValue::get) {
            Some(meta) if meta.starts_with('{') => {
                serde_json::from_str(meta).map_err(|_| EnvelopeError::Params)
            }
            Some(_) => Err(EnvelopeError::Bad("type: it must be an object")),
            None => Ok(Meta::default()),
        }
    }
}

fn parse(params: &str) -> Result<Params<'_>, EnvelopeError> {
    if !params.starts_with('{') {
        return Err(EnvelopeError::Params);
    }
    serde_json::from_str(params).map_err(|_| EnvelopeError::Params)
}

fn text(value: Option<&RawValue>) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(value?.get()).ok().map(|text| text.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_is_found_only_in_params_meta() {
        let key = META_PROTOCOL_VERSION;
        for (params, expect) in [
            (format!(r#"{{"_meta":{{"{key}":"2026-07-28"}}}}"#), true),
            (format!(r#"{{"_meta":{{"{key}":5}}}}"#), true),
            (r#"{"_meta":{"io.modelcontextprotocol\/protocolVersion":"2026-07-28"}}"#.to_owned(), true),
            (format!(r#"{{"arguments":{{"_meta":{{"{key}":"2026-07-28"}}}}}}"#), false),
            (format!(r#"{{"name":"{key}"}}"#), false),
            (format!(r#"{{"_meta":"{key}"}}"#), false),
            (format!(r#"["{key}"]"#), false),
            ("{}".to_owned(), false),
        ] {
            assert_eq!(is_stateless_request(&params), expect, "{params}");
        }
    }

    #[test]
    fn an_envelope_has_its_required_members() {
        let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
        let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
        let level = r#""io.modelcontextprotocol/logLevel""#;
        let check = |meta: &str| {
            let params = format!(r#"{{"name":"add","_meta":{meta}}}"#);
            read("tools/call", Some(&params))
                .map(|envelope| (envelope.version.into_owned(), envelope.name.map(Cow::into_owned)))
        };
        assert_eq!(
            check(&format!("{{{version},{capabilities}}}")),
            Ok(("2026-07-28".into(), Some("add".into())))
        );
        assert_eq!(check(&format!("{{{capabilities}}}")), Err(EnvelopeError::Missing(META_PROTOCOL_VERSION)));
        assert_eq!(check(&format!("{{{version}}}")), Err(EnvelopeError::Missing(META_CLIENT_CAPABILITIES)));
        assert_eq!(
            check(&format!(r#"{{{version},{capabilities},{level}:"loud"}}"#)),
            Err(EnvelopeError::Bad(META_LOG_LEVEL))
        );
        assert!(check(&format!(r#"{{{version},{capabilities},{level}:"debug"}}"#)).is_ok());
        assert!(check("[]").is_err());
        assert_eq!(read("tools/list", None), Err(EnvelopeError::Missing(META_PROTOCOL_VERSION)));
    }
}
