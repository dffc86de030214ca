//! Putting other values into a JSON text, whose remaining bytes stay as they came. Pure.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Where the value is that these names lead to, from object to object. The last of several members of one name counts.
pub(crate) fn find(text: &str, path: &[&str]) -> Option<Range<usize>> {
    let mut value = text;
    for name in path {
        value = member(value, name)?;
    }
    // Each value is a part of the text that it was found in.
    let start = (value.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    Some(start..start + value.len())
}

/// The text with each of these parts replaced. They are in order and do not overlap.
pub(crate) fn replace(text: &str, edits: &[(Range<usize>, &str)]) -> Bytes {
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

/// The same JSON on one line: a line end inside of it can only stand between tokens.
pub(crate) fn one_line(text: Bytes) -> Bytes {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if !text.iter().any(is_end) {
        return text;
    }
    text.iter().map(|byte| if is_end(byte) { b' ' } else { *byte }).collect()
}

fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    struct Find<'n>(&'n str);
    impl<'de> Visitor<'de> for Find<'_> {
        type Value = Option<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            #[derive(Deserialize)]
            struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
            let mut found = None;
            while let Some(Name(name)) = map.next_key()? {
                if name == self.0 {
                    found = Some(map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found)
        }
    }
    let found = serde_json::Deserializer::from_str(object).deserialize_map(Find(name)).ok()?;
    found.map(RawValue::get)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn everything_else_stays() {
        let text = r#"{"id":1, "a": 1.50 ,"m":{"t":"é"} }"#;
        let edits = [(find(text, &["id"]).unwrap(), "\"x\""), (find(text, &["m", "t"]).unwrap(), "22")];
        assert_eq!(replace(text, &edits), r#"{"id":"x", "a": 1.50 ,"m":{"t":22} }"#);
        assert_eq!(replace(text, &[]), text);
    }

    #[test]
    fn a_message_is_one_line() {
        let text = Bytes::from_static(b"{\r\n \"a\": \"\\n\"\n}");
        assert_eq!(one_line(text), Bytes::from_static(b"{   \"a\": \"\\n\" }"));
    }
}
