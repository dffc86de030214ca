//! A JSON object as the texts of its members, so that one can be set and the others stay as they came.

use std::fmt;

use crate::rpc::json_string;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    list: Vec<(String, String)>,
}

/// This is not the JSON text of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON object")]
pub struct NotAnObject;

impl Members {
    /// An object of these members, which have names of their own.
    pub fn of(list: Vec<(String, String)>) -> Self {
        Self { list }
    }

    pub fn parse(text: &str) -> Result<Self, NotAnObject> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Members::default();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    members.list.push((name, value.get().to_owned()));
                }
                Ok(members)
            }
        }
        let mut parser = serde_json::Deserializer::from_str(text);
        let members = parser.deserialize_map(Object).map_err(|_| NotAnObject)?;
        parser.end().map_err(|_| NotAnObject)?;
        Ok(members)
    }

    /// The JSON text of a member's value. The last of several of one name counts, as for most parsers.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.list.iter().rfind(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The text in a member that is a string.
    pub fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    pub fn set(&mut self, name: &str, json: &str) {
        match self.list.iter_mut().rfind(|(other, _)| other == name) {
            Some((_, value)) => json.clone_into(value),
            None => self.list.push((name.to_owned(), json.to_owned())),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Writes the object as JSON.
impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, (name, value)) in self.list.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}:{value}", json_string(name))?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_as_they_came() {
        let text = r#"{ "a" : 1.50, "b":{"z":1,"a": [ 2 ]},"a\"":"\u0041" }"#;
        let mut members = Members::parse(text).unwrap();
        assert_eq!(members.to_string(), r#"{"a":1.50,"b":{"z":1,"a": [ 2 ]},"a\"":"\u0041"}"#);
        members.set("b", "7");
        members.set("c", "null");
        assert_eq!(members.to_string(), r#"{"a":1.50,"b":7,"a\"":"\u0041","c":null}"#);
        assert_eq!((members.text("a\""), members.text("a")), (Some("A".to_owned()), None));
    }

    #[test]
    fn the_last_of_a_name_counts() {
        let mut members = Members::parse(r#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(members.get("a"), Some("2"));
        members.set("a", "3");
        assert_eq!(members.get("a"), Some("3"));
    }

    #[test]
    fn only_objects_have_members() {
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
            assert_eq!(Members::parse(text).map(|m| m.to_string()), expect.map(str::to_owned), "{text}");
        }
    }
}
