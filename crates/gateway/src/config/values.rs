//! Values as people write them: times, sizes, lists of names.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A span of time: `"30s"`, `"1h30m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) Duration);

const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no span of time: write for instance \"500ms\", \"30s\", \"1h30m\"");
        let mut rest = text;
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (number, unit, after) = number_and_unit(rest).ok_or_else(wrong)?;
            let millis = TIME_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
            let part = number.checked_mul(millis).ok_or_else(wrong)?;
            total = total.checked_add(part).ok_or_else(wrong)?;
            rest = after;
        }
        if text.is_empty() { Err(wrong()) } else { Ok(Self(Duration::from_millis(total))) }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let fits = |unit: u64| millis != 0 && millis.is_multiple_of(u128::from(unit));
        let (unit, size) = TIME_UNITS.into_iter().find(|(_, size)| fits(*size)).unwrap_or(("s", 1000));
        write!(f, "{}{unit}", millis / u128::from(size))
    }
}

/// A number of bytes: `"4MiB"`, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("B", 1),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no size: write for instance \"64KiB\", \"4MiB\" or a number of bytes");
        let (number, unit, rest) = number_and_unit(text).ok_or_else(wrong)?;
        let unit = if unit.is_empty() { "B" } else { unit };
        let factor = SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
        if rest.is_empty() { number.checked_mul(factor).map(Self).ok_or_else(wrong) } else { Err(wrong()) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |unit: u64| self.0 != 0 && self.0.is_multiple_of(unit);
        let binary = &SIZE_UNITS[..3];
        match binary.iter().find(|(_, size)| fits(*size)) {
            Some((unit, size)) => write!(f, "{}{unit}", self.0 / size),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// `12ms3s` is 12, `ms` and the rest. A missing number is nothing.
fn number_and_unit(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    Some((number.parse().ok()?, unit, rest))
}

/// Who is let in: `"loopback"`, `"any"`, or a list of names besides loopback ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    Loopback,
    Any,
    And(Vec<String>),
}

impl Serialize for Allowed {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Loopback => to.serialize_str("loopback"),
            Self::Any => to.serialize_str("any"),
            Self::And(names) => names.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Allowed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match OneOrMany::deserialize(from)?.0 {
            (Shape::One, mut texts) => match texts.pop().as_deref() {
                Some("loopback") => Ok(Self::Loopback),
                Some("any") => Ok(Self::Any),
                _ => Err(D::Error::custom("write \"loopback\", \"any\" or a list of names")),
            },
            (Shape::Many, names) => Ok(Self::And(names)),
        }
    }
}

/// One text, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OneOrMany((Shape, Vec<String>));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    One,
    Many,
}

impl OneOrMany {
    pub(crate) fn one(text: impl Into<String>) -> Self {
        Self((Shape::One, vec![text.into()]))
    }

    pub(crate) fn none() -> Self {
        Self((Shape::Many, Vec::new()))
    }

    pub(crate) fn all(&self) -> &[String] {
        &self.0.1
    }

    /// How the text with this number is reached from where the value is.
    pub(crate) fn step(&self, index: usize) -> String {
        match self.0.0 {
            Shape::One => String::new(),
            Shape::Many => format!("[{index}]"),
        }
    }
}

impl Serialize for OneOrMany {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            (Shape::One, texts) if texts.len() == 1 => to.serialize_str(&texts[0]),
            (_, texts) => texts.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany::one(text))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<OneOrMany, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = seq.next_element()? {
                    texts.push(text);
                }
                Ok(OneOrMany((Shape::Many, texts)))
            }
        }
        from.deserialize_any(Either)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"4MiB\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size is not negative"))
            }
        }
        from.deserialize_any(Bytes)
    }
}

macro_rules! schema {
    ($name:ident, $schema:tt) => {
        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

schema!(Time, {"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d))+$", "examples": ["30s", "10m", "1h30m"]});
schema!(Size, {
    "anyOf": [
        {"type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB|kB|MB|GB)?$", "examples": ["64KiB", "4MiB"]},
        {"type": "integer", "minimum": 0}
    ]
});
schema!(OneOrMany, {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]});
schema!(Allowed, {
    "anyOf": [{"enum": ["loopback", "any"]}, {"type": "array", "items": {"type": "string"}}]
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, expect) in [
            ("500ms", Some(500)),
            ("30s", Some(30_000)),
            ("1h30m", Some(5_400_000)),
            ("2d", Some(172_800_000)),
            ("0s", Some(0)),
            ("30", None),
            ("", None),
            ("s", None),
            ("-1s", None),
            ("1.5s", None),
            ("30 s", None),
            ("1y", None),
            ("99999999999999999d", None),
        ] {
            let read = text.parse::<Time>().ok();
            assert_eq!(read, expect.map(|millis| Time(Duration::from_millis(millis))), "{text}");
            if let Some(time) = read {
                assert_eq!(time.to_string().parse(), Ok(time), "{text} written again");
            }
        }
        assert_eq!(Time(Duration::from_secs(90)).to_string(), "90s");
        assert_eq!(Time(Duration::from_secs(3600)).to_string(), "1h");
    }

    #[test]
    fn sizes() {
        for (text, expect) in [
            ("4MiB", Some(4 << 20)),
            ("64KiB", Some(64 << 10)),
            ("1GiB", Some(1 << 30)),
            ("5kB", Some(5000)),
            ("17", Some(17)),
            ("17B", Some(17)),
            ("0", Some(0)),
            ("4Mib", None),
            ("4MiB4", None),
            ("MiB", None),
            ("99999999999999GiB", None),
        ] {
            let read = text.parse::<Size>().ok();
            assert_eq!(read, expect.map(Size), "{text}");
            if let Some(size) = read {
                assert_eq!(size.to_string().parse(), Ok(size), "{text} written again");
            }
        }
        assert_eq!(Size(4 << 20).to_string(), "4MiB");
    }
}
