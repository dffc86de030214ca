//! Reads and changes JSON text. Values that are not touched keep their bytes.
//!
//! [`get`], [`find`] and [`replace`] work on the text itself. [`RawObject`] is an object whose
//! members can be set.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::de::StrRead;
use serde_json::value::RawValue;

use crate::rpc::json_string;

/// Returns the JSON text of the value at this path of member names. If a name is repeated, the last
/// member counts, as in most parsers. Text after the object is ignored.
pub fn get<'a>(text: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(text, |object, name| {
        let mut found = None;
        let mut parser = serde_json::Deserializer::from_str(object);
        for_each_member(&mut parser, |other, value| {
            if other == *name {
                found = Some(value);
            }
        })
        .ok()?;
        found
    })
}

/// Returns the value at this path if it is a string.
pub fn get_string(text: &str, path: &[&str]) -> Option<String> {
    serde_json::from_str(get(text, path)?).ok()
}

/// Returns the position of the value at this path, for [`replace`].
pub fn find(text: &str, path: &[&str]) -> Option<Range<usize>> {
    let value = get(text, path)?;
    // The value is a part of the text.
    let start = (value.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    Some(start..start + value.len())
}

/// Returns the text with each of these parts replaced. They must be in order and must not overlap.
pub fn replace(text: &str, edits: &[(Range<usize>, &str)]) -> Bytes {
    let added: usize = edits.iter().map(|(_, new)| new.len()).sum();
    let mut out = Vec::with_capacity(text.len() + added);
    let mut done = 0;
    for (part, new) in edits {
        out.extend_from_slice(&text.as_bytes()[done..part.start]);
        out.extend_from_slice(new.as_bytes());
        done = part.end;
    }
    out.extend_from_slice(&text.as_bytes()[done..]);
    out.into()
}

/// Returns the JSON on one line. A line break can only stand between tokens.
pub fn one_line(text: Bytes) -> Bytes {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if !text.iter().any(is_end) {
        return text;
    }
    text.iter().map(|byte| if is_end(byte) { b' ' } else { *byte }).collect()
}

/// A JSON object with unparsed values. Its members keep their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawObject {
    members: Vec<(String, String)>,
}

/// The text is not a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON object")]
pub struct NotAnObject;

impl RawObject {
    /// Creates an object from names and JSON texts. The names must differ.
    pub fn from_members(members: Vec<(String, String)>) -> Self {
        Self { members }
    }

    /// Parses the JSON text of an object.
    pub fn parse(text: &str) -> Result<Self, NotAnObject> {
        let mut members = Vec::new();
        let mut parser = serde_json::Deserializer::from_str(text);
        for_each_member(&mut parser, |name, value| members.push((name.into_owned(), value.to_owned())))
            .and_then(|()| parser.end())
            .map_err(|_| NotAnObject)?;
        Ok(Self { members })
    }

    /// Returns the JSON text of a member's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.members.iter().rfind(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a member that is a string.
    pub fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// Sets a member to a JSON text.
    pub fn set(&mut self, name: &str, json: &str) {
        match self.members.iter_mut().rfind(|(other, _)| other == name) {
            Some((_, value)) => json.clone_into(value),
            None => self.members.push((name.to_owned(), json.to_owned())),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.members.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Writes the object as JSON.
impl fmt::Display for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, (name, value)) in self.members.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}:{value}", json_string(name))?;
        }
        f.write_str("}")
    }
}

/// Calls `each` with the name and the JSON text of each member of the object that the parser reads.
fn for_each_member<'a>(
    parser: &mut serde_json::Deserializer<StrRead<'a>>,
    each: impl FnMut(Cow<'a, str>, &'a str),
) -> Result<(), serde_json::Error> {
    struct Members<F>(F);
    impl<'de, F: FnMut(Cow<'de, str>, &'de str)> Visitor<'de> for Members<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
            #[derive(Deserialize)]
            struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
            while let Some((Name(name), value)) = map.next_entry::<_, &RawValue>()? {
                self.0(name, value.get());
            }
            Ok(())
        }
    }
    parser.deserialize_map(Members(each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_text() {
        let text = r#"{ "a" : 1.50, "b":{"z":1,"a": [ 2 ]},"a\"":"\u0041" }"#;
        let mut object = RawObject::parse(text).unwrap();
        assert_eq!(object.to_string(), r#"{"a":1.50,"b":{"z":1,"a": [ 2 ]},"a\"":"\u0041"}"#);
        object.set("b", "7");
        object.set("c", "null");
        assert_eq!(object.to_string(), r#"{"a":1.50,"b":7,"a\"":"\u0041","c":null}"#);
        assert_eq!((object.text("a\""), object.text("a")), (Some("A".to_owned()), None));
    }

    #[test]
    fn the_last_of_repeated_names_counts() {
        let mut object = RawObject::parse(r#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(object.get("a"), Some("2"));
        object.set("a", "3");
        assert_eq!(object.get("a"), Some("3"));
    }

    #[test]
    fn only_objects_are_accepted() {
        for (text, expect) in [
            ("{}", Ok("{}")),
            (" {} ", Ok("{}")),
            (r#"{"a":1,"a":2}"#, Ok(r#"{"a":1,"a":2}"#)),
            ("[]", Err(NotAnObject)),
            ("[[\"a\",1]]", Err(NotAnObject)),
            ("null", Err(NotAnObject)),
            ("{} {}", Err(NotAnObject)),
            ("{", Err(NotAnObject)),
            ("", Err(NotAnObject)),
        ] {
            assert_eq!(RawObject::parse(text).map(|m| m.to_string()), expect.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn values_are_found_by_their_path() {
        let text = r#" { "id" : 1 , "params":{"_meta" :{"a\/b": "x" },"id":[2]},"id": 7 }"#;
        for (path, expect) in [
            (&["id"][..], Some("7")),
            (&["params", "id"], Some("[2]")),
            (&["params", "_meta", "a/b"], Some("\"x\"")),
            (&["params", "none"], None),
            (&["id", "id"], None),
            (&["params", "id", "0"], None),
        ] {
            assert_eq!(find(text, path).map(|range| &text[range]), expect, "{path:?}");
        }
        assert_eq!(find("[1]", &["id"]), None);
        assert_eq!(find("{", &["id"]), None);
    }

    #[test]
    fn everything_else_stays_unchanged() {
        let text = r#"{"id":1, "a": 1.50 ,"m":{"t":"é"} }"#;
        let edits = [(find(text, &["id"]).unwrap(), "\"x\""), (find(text, &["m", "t"]).unwrap(), "22")];
        assert_eq!(replace(text, &edits), r#"{"id":"x", "a": 1.50 ,"m":{"t":22} }"#);
        assert_eq!(replace(text, &[]), text);
    }

    #[test]
    fn line_breaks_are_removed() {
        let text = Bytes::from_static(b"{\r\n \"a\": \"\\n\"\n}");
        assert_eq!(one_line(text), Bytes::from_static(b"{   \"a\": \"\\n\" }"));
    }
}
