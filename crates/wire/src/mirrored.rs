//! Mirrored request headers of 2026-07-28: what of a body is repeated in headers, and how it is spelt there.
//!
//! `Mcp-Method` repeats the method, `Mcp-Name` the member that [`name_member`] names, and `Mcp-Param-…` the
//! arguments that a tool's input schema marks with `x-mcp-header` ([`annotations`]). Clients write them with
//! [`encode`] and [`param_text`], servers read them with [`decode`] and [`matches()`].

use std::borrow::Cow;

use data_encoding::BASE64;
use serde_json::{Map, Number, Value};

use crate::headers;

mod schema;

pub use schema::{annotations, annotations_of};

/// The member of a schema that names the header of a parameter.
pub const ANNOTATION: &str = "x-mcp-header";

/// How many parameters of one tool may be mirrored. Each becomes a header, and servers refuse heads of more than
/// some hundred headers.
pub const MAX_ANNOTATIONS: usize = 64;

/// The largest integer that every JSON implementation reads exactly; larger ones cannot be mirrored.
pub const MAX_INTEGER: i64 = (1 << 53) - 1;

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// A parameter that is to be repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The whole name of the header, in lower case.
    pub header: String,
    /// The names of the properties that lead to the value, from the arguments on; never empty.
    pub path: Vec<String>,
}

/// Why a header cannot be read. Whoever sent it is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSentinel {
    #[error("the header says that it is base64 and is not")]
    Base64,
    #[error("the base64 of the header is not UTF-8")]
    NotUtf8,
}

/// Why the annotations of a tool cannot be honoured, which makes the tool unusable. Its author is to blame.
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
    /// The value to repeat, if the arguments have one. A null is as good as none.
    pub fn value<'a>(&self, arguments: &'a Map<String, Value>) -> Option<&'a Value> {
        let (first, rest) = self.path.split_first()?;
        let value = rest.iter().try_fold(arguments.get(first)?, |value, name| value.get(name))?;
        if value.is_null() { None } else { Some(value) }
    }
}

/// The member of `params` that `Mcp-Name` repeats.
pub fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// A value as a header: as it is, or in base64 if a header would not carry it unchanged.
pub fn encode(value: &str) -> Cow<'_, str> {
    let is_visible = |b: u8| (0x20..=0x7e).contains(&b);
    let is_plain = value.bytes().all(is_visible) && !value.starts_with(' ') && !value.ends_with(' ');
    let looks_encoded = value.starts_with(PREFIX) && value.ends_with(SUFFIX);
    if is_plain && !looks_encoded {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{PREFIX}{}{SUFFIX}", BASE64.encode(value.as_bytes())))
}

/// The value in a header whose surrounding blanks are gone. The markers are exact: anything else is the value itself.
pub fn decode(header: &str) -> Result<Cow<'_, str>, BadSentinel> {
    let Some(text) = header.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)) else {
        return Ok(Cow::Borrowed(header));
    };
    let bytes = BASE64.decode(text.as_bytes()).map_err(|_| BadSentinel::Base64)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| BadSentinel::NotUtf8)
}

/// An argument as text, before [`encode`]. `None` for what cannot be mirrored: null, fractions, integers beyond
/// [`MAX_INTEGER`], lists and objects.
pub fn param_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => integer(number).map(|number| number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether a decoded header repeats a value of the body. Integers compare as numbers: `42.0` is `42`.
pub fn matches(text: &str, value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let said = serde_json::from_str::<Number>(text).ok().as_ref().and_then(integer);
            said.is_some() && said == integer(number)
        }
        other => param_text(other).is_some_and(|expect| expect == text),
    }
}

/// The integer that a number is, however it is spelt.
fn integer(number: &Number) -> Option<i64> {
    let exact = number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        // Beyond the range below a float may stand for several integers; within it, for one.
        (float.fract() == 0.0 && float.abs() <= MAX_INTEGER as f64).then_some(float as i64)
    });
    exact.filter(|number| number.abs_diff(0) <= MAX_INTEGER as u64)
}

fn header_name(annotation: &str) -> String {
    format!("{}{}", headers::PARAM_PREFIX, annotation.to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
