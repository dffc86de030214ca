//! What every stateless request carries: `_meta`, and the headers that mirror its body.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use steadfast_wire::mirrored::{self, Annotation};
use steadfast_wire::params::{META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_PROTOCOL_VERSION};
use steadfast_wire::rpc::json_string;
use steadfast_wire::{Revision, headers};

use crate::error::Error;
use crate::link::{Link, Reply};
use crate::message;
use steadfast_wire::members::Members;

/// The only stateless revision there is.
const REVISION: Revision = Revision::V2026_07_28;

/// Asks the server which revisions it speaks.
pub(crate) async fn discover(link: &Link) -> Result<Reply, Error> {
    let id = link.next_id();
    let params = with_meta(link, None);
    let headers = headers("server/discover", &params, &[])?;
    let text = message::request(&id, "server/discover", Some(&params.to_string()));
    link.request(&id, REVISION, headers, text).await.map(|(_, reply)| reply)
}

/// The parameters with what a server must know of us. Other keys of `_meta` stay as they are.
pub(super) fn with_meta(link: &Link, params: Option<Members>) -> Members {
    let mut params = params.unwrap_or_default();
    let mut meta = params.get("_meta").and_then(|meta| Members::parse(meta).ok()).unwrap_or_default();
    meta.set(META_PROTOCOL_VERSION, &json_string(REVISION.as_str()));
    meta.set(META_CLIENT_CAPABILITIES, &link.capabilities);
    meta.set(META_CLIENT_INFO, &link.info);
    params.set("_meta", &meta.to_string());
    params
}

/// The headers of a request: its revision, its method, its name, and the arguments that its tool wants there.
pub(super) fn headers(
    method: &str,
    params: &Members,
    annotations: &[Annotation],
) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(REVISION.as_str()));
    headers.insert(headers::METHOD, value(method)?);
    if let Some(name) = mirrored::name_member(method).and_then(|member| params.text(member)) {
        headers.insert(headers::NAME, value(&name)?);
    }
    if annotations.is_empty() {
        return Ok(headers);
    }
    let arguments = params.get("arguments").and_then(|text| serde_json::from_str(text).ok());
    let arguments: Map<String, Value> = arguments.unwrap_or_default();
    for annotation in annotations {
        let Some(argument) = annotation.value(&arguments) else { continue };
        let unmirrorable = || Error::Unmirrorable { header: annotation.header.clone() };
        let text = mirrored::param_text(argument).ok_or_else(unmirrorable)?;
        let name = HeaderName::from_bytes(annotation.header.as_bytes()).map_err(|_| unmirrorable())?;
        headers.insert(name, value(&text)?);
    }
    Ok(headers)
}

fn value(text: &str) -> Result<HeaderValue, Error> {
    // What `encode` gives is visible ASCII.
    HeaderValue::from_str(&mirrored::encode(text)).map_err(|_| Error::BadParams)
}
