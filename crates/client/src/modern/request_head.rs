//! Builds what every stateless request carries: `_meta`, and the headers that mirror parts of the
//! body.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use steadfast_wire::header_annotations::{self, Annotation};
use steadfast_wire::params::{META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_PROTOCOL_VERSION};
use steadfast_wire::rpc::json_string;
use steadfast_wire::{Revision, headers};

use crate::error::Error;
use crate::peer::{Peer, Reply, message};
use steadfast_wire::RawObject;

/// The only stateless revision.
const REVISION: Revision = Revision::V2026_07_28;

/// Asks the server which revisions it supports.
pub(crate) async fn discover(peer: &Peer) -> Result<Reply, Error> {
    let id = peer.next_id();
    let params = with_meta(peer, None);
    let headers = headers("server/discover", &params, &[])?;
    let text = message::request(&id, "server/discover", Some(&params.to_string()));
    peer.request(&id, REVISION, headers, text).await.map(|(_, reply)| reply)
}

/// Adds the revision, the capabilities and `clientInfo` to `_meta`. Other keys of `_meta` are
/// unchanged.
pub(super) fn with_meta(peer: &Peer, params: Option<RawObject>) -> RawObject {
    let mut params = params.unwrap_or_default();
    let mut meta = params.get("_meta").and_then(|meta| RawObject::parse(meta).ok()).unwrap_or_default();
    meta.set(META_PROTOCOL_VERSION, &json_string(REVISION.as_str()));
    meta.set(META_CLIENT_CAPABILITIES, &peer.capabilities);
    meta.set(META_CLIENT_INFO, &peer.info);
    params.set("_meta", &meta.to_string());
    params
}

/// Returns the headers of a request: revision, method, name, and the arguments that the tool
/// expects in headers.
pub(super) fn headers(
    method: &str,
    params: &RawObject,
    annotations: &[Annotation],
) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(REVISION.as_str()));
    headers.insert(headers::METHOD, value(method)?);
    if let Some(name) = header_annotations::name_member(method).and_then(|member| params.text(member)) {
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
        let text = header_annotations::argument_text(argument).ok_or_else(unmirrorable)?;
        let name = HeaderName::from_bytes(annotation.header.as_bytes()).map_err(|_| unmirrorable())?;
        headers.insert(name, value(&text)?);
    }
    Ok(headers)
}

fn value(text: &str) -> Result<HeaderValue, Error> {
    // `encode` returns visible ASCII.
    HeaderValue::from_str(&header_annotations::encode(text)).map_err(|_| Error::BadParams)
}
