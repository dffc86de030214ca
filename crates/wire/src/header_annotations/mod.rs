//! Header annotations (`x-mcp-header`) and the other request headers of revision 2026-07-28 that
//! repeat parts of the body.
//!
//! `Mcp-Method` repeats the method. `Mcp-Name` repeats the member that [`name_member`] names.
//! `Mcp-Param-…` repeats a tool argument that the tool's input schema annotates with `x-mcp-header`
//! ([`annotations`]). Clients write these headers with [`encode`] and [`argument_text`]. Servers
//! read them with [`decode`] and [`matches()`].

use std::borrow::Cow;

use data_encoding::BASE64;
use serde_json::{Map, Number, Value};

use crate::headers;

mod schema;

pub use schema::{annotations, annotations_of_object};

/// The schema member that names the header of a parameter.
pub const ANNOTATION: &str = "x-mcp-header";

/// How many parameters of one tool may be annotated. Each becomes a header, and servers refuse
/// requests with more than about a hundred headers.
pub const MAX_ANNOTATIONS: usize = 64;

/// The largest integer that every JSON implementation reads exactly. Larger integers cannot be
/// repeated in a header.
pub const MAX_INTEGER: i64 = (1 << 53) - 1;

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// A tool parameter that a header repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The full name of the header, in lower case.
    pub header: String,
    /// The property names that lead from the arguments to the value. Never empty.
    pub path: Vec<String>,
}

/// Why a header value cannot be decoded. Every case is an error of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEncoding {
    #[error("the header is marked as base64 but is not valid base64")]
    Base64,
    #[error("the header decodes to text that is not UTF-8")]
    NotUtf8,
}

/// Why the annotations of a tool are invalid. An invalid annotation makes the tool unusable, and
/// the author of the tool must correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnnotation {
    #[error("the {ANNOTATION} of {at:?} is not a string")]
    NotText { at: String },
    #[error("the {ANNOTATION} of {at:?} is empty")]
    Empty { at: String },
    #[error("the {ANNOTATION} of {at:?} has characters that no header name has")]
    NotAToken { at: String },
    #[error("the {ANNOTATION} of {at:?} is also that of another parameter")]
    Repeated { at: String },
    #[error("the {ANNOTATION} of {at:?} is on a type other than string, integer and boolean")]
    NotPrimitive { at: String },
    #[error("the {ANNOTATION} under {at:?} is not reached through \"properties\" alone")]
    Unreachable { at: String },
    #[error("more than {MAX_ANNOTATIONS} parameters have an {ANNOTATION}")]
    TooMany,
}

impl Annotation {
    /// Returns the value to repeat. Returns `None` if the arguments do not contain it, or if it is
    /// null.
    pub fn value<'a>(&self, arguments: &'a Map<String, Value>) -> Option<&'a Value> {
        let (first, rest) = self.path.split_first()?;
        let value = rest.iter().try_fold(arguments.get(first)?, |value, name| value.get(name))?;
        if value.is_null() { None } else { Some(value) }
    }
}

/// Returns the member of `params` that `Mcp-Name` repeats for a method.
pub fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// Encodes a header value: unchanged if a header can carry it, otherwise in base64 between markers.
pub fn encode(value: &str) -> Cow<'_, str> {
    let is_visible = |b: u8| (0x20..=0x7e).contains(&b);
    let is_plain = value.bytes().all(is_visible) && !value.starts_with(' ') && !value.ends_with(' ');
    let looks_encoded = value.starts_with(PREFIX) && value.ends_with(SUFFIX);
    if is_plain && !looks_encoded {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{PREFIX}{}{SUFFIX}", BASE64.encode(value.as_bytes())))
}

/// Decodes a header value. The caller must remove surrounding whitespace first. A value without the
/// exact markers is returned unchanged.
pub fn decode(header: &str) -> Result<Cow<'_, str>, BadEncoding> {
    let Some(text) = header.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)) else {
        return Ok(Cow::Borrowed(header));
    };
    let bytes = BASE64.decode(text.as_bytes()).map_err(|_| BadEncoding::Base64)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| BadEncoding::NotUtf8)
}

/// Returns the text of an argument, before [`encode`]. Returns `None` for arguments that a header
/// cannot repeat: null, fractions, integers beyond [`MAX_INTEGER`], arrays and objects.
pub fn argument_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => integer(number).map(|number| number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns true if a decoded header repeats a value of the body. Integers compare as numbers:
/// `42.0` equals `42`.
pub fn matches(text: &str, value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let header = serde_json::from_str::<Number>(text).ok().as_ref().and_then(integer);
            header.is_some() && header == integer(number)
        }
        other => argument_text(other).is_some_and(|expect| expect == text),
    }
}

/// Returns the integer value of a number, in any notation.
fn integer(number: &Number) -> Option<i64> {
    let exact = number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        // Within this range a float represents exactly one integer.
        (float.fract() == 0.0 && float.abs() <= MAX_INTEGER as f64).then_some(float as i64)
    });
    exact.filter(|number| number.abs_diff(0) <= MAX_INTEGER as u64)
}

fn header_name(annotation: &str) -> String {
    format!("{}{}", headers::PARAM_PREFIX, annotation.to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
