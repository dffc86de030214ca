//! Values with a notation of their own: durations, sizes in bytes, numbers of calls, one text or
//! several, lists of allowed names.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use steadfast::{Revision, Revisions};
use steadfast_upstream::Concurrency;

/// A duration such as `"30s"` or `"1h30m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimeSpan(pub(crate) Duration);

const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl FromStr for TimeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a duration: write for example \"500ms\", \"30s\", \"1h30m\"");
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

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let fits = |unit: u64| millis != 0 && millis.is_multiple_of(u128::from(unit));
        let (unit, size) = TIME_UNITS.into_iter().find(|(_, size)| fits(*size)).unwrap_or(("s", 1000));
        write!(f, "{}{unit}", millis / u128::from(size))
    }
}

/// A number of bytes such as `"4MiB"`, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteSize(pub(crate) u64);

impl ByteSize {
    /// A size beyond the address space of the machine is no limit.
    pub(crate) fn to_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a size: write for example \"64KiB\", \"4MiB\" or a number of bytes");
        let (number, unit, rest) = number_and_unit(text).ok_or_else(wrong)?;
        let unit = if unit.is_empty() { "B" } else { unit };
        let factor = SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
        if rest.is_empty() { number.checked_mul(factor).map(Self).ok_or_else(wrong) } else { Err(wrong()) }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |unit: u64| self.0 != 0 && self.0.is_multiple_of(unit);
        let binary = &SIZE_UNITS[..3];
        match binary.iter().find(|(_, size)| fits(*size)) {
            Some((unit, size)) => write!(f, "{}{unit}", self.0 / size),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// Splits `12ms3s` into 12, `ms` and `3s`. Returns `None` if the text starts with no number.
fn number_and_unit(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    Some((number.parse().ok()?, unit, rest))
}

/// How many calls an upstream session gets at a time: `"auto"`, `"unlimited"`, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallLimit(pub(crate) Concurrency);

impl FromStr for CallLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self(Concurrency::Auto)),
            "unlimited" => Ok(Self(Concurrency::Unlimited)),
            _ => match text.parse() {
                Ok(limit) => Ok(Self(Concurrency::AtMost(limit))),
                Err(_) => Err(format!("{text:?} is not a limit: {CALL_LIMIT_HELP}")),
            },
        }
    }
}

const CALL_LIMIT_HELP: &str = "write \"auto\", \"unlimited\" or a number from 1";

impl Serialize for CallLimit {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Concurrency::Auto => to.serialize_str("auto"),
            Concurrency::Unlimited => to.serialize_str("unlimited"),
            Concurrency::AtMost(limit) => limit.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for CallLimit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Limit;
        impl Visitor<'_> for Limit {
            type Value = CallLimit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\", \"unlimited\" or a number from 1")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<CallLimit, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<CallLimit, E> {
                let limit = usize::try_from(number).ok().and_then(NonZeroUsize::new);
                let wrong = || E::custom(format!("{number} is not a limit: {CALL_LIMIT_HELP}"));
                limit.map(|limit| CallLimit(Concurrency::AtMost(limit))).ok_or_else(wrong)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<CallLimit, E> {
                self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
            }
        }
        from.deserialize_any(Limit)
    }
}

/// Which names are accepted: `"loopback"`, `"any"`, or a list of names besides loopback names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AllowList {
    Loopback,
    Any,
    LoopbackAnd(Vec<String>),
}

impl Serialize for AllowList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Loopback => to.serialize_str("loopback"),
            Self::Any => to.serialize_str("any"),
            Self::LoopbackAnd(names) => names.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for AllowList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match OneOrMany::deserialize(from)?.0 {
            (Shape::One, mut texts) => match texts.pop().as_deref() {
                Some("loopback") => Ok(Self::Loopback),
                Some("any") => Ok(Self::Any),
                _ => Err(D::Error::custom("write \"loopback\", \"any\" or a list of names")),
            },
            (Shape::Many, names) => Ok(Self::LoopbackAnd(names)),
        }
    }
}

/// Which protocol revisions an endpoint offers: `"all"`, `"legacy"`, or a list of revisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfferedRevisions(pub(crate) Revisions);

impl Serialize for OfferedRevisions {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            all if *all == Revisions::all() => to.serialize_str("all"),
            legacy if *legacy == Revisions::legacy() => to.serialize_str("legacy"),
            list => to.collect_seq(list.iter().map(Revision::as_str)),
        }
    }
}

impl<'de> Deserialize<'de> for OfferedRevisions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let parsed = match OneOrMany::deserialize(from)?.0 {
            (Shape::One, texts) if texts == ["all"] => Some(Revisions::all()),
            (Shape::One, texts) if texts == ["legacy"] => Some(Revisions::legacy()),
            (Shape::One, _) => None,
            (Shape::Many, texts) => {
                let revisions: Option<Vec<Revision>> =
                    texts.iter().map(|text| Revision::parse(text)).collect();
                revisions.and_then(Revisions::new)
            }
        };
        let known = Revisions::all();
        let wrong = || D::Error::custom(format!("write \"all\", \"legacy\" or a list of these: {known}"));
        parsed.map(Self).ok_or_else(wrong)
    }
}

/// One text, or a list of texts. Remembers which of the two was written.
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

    /// The suffix of the key for the text with this index: `[1]`, or nothing if the value is a
    /// single text.
    pub(crate) fn key_suffix(&self, index: usize) -> String {
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

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"4MiB\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes).map(ByteSize).map_err(|_| E::custom("a size cannot be negative"))
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

schema!(TimeSpan, {"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d))+$", "examples": ["30s", "10m", "1h30m"]});
schema!(ByteSize, {
    "anyOf": [
        {"type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB|kB|MB|GB)?$", "examples": ["64KiB", "4MiB"]},
        {"type": "integer", "minimum": 0}
    ]
});
schema!(CallLimit, {"anyOf": [{"enum": ["auto", "unlimited"]}, {"type": "integer", "minimum": 1}]});
schema!(OneOrMany, {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]});
schema!(OfferedRevisions, {
    "anyOf": [
        {"enum": ["all", "legacy"]},
        {"type": "array", "items": {"enum": ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]}, "minItems": 1}
    ]
});
schema!(AllowList, {
    "anyOf": [{"enum": ["loopback", "any"]}, {"type": "array", "items": {"type": "string"}}]
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_printed() {
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
            let read = text.parse::<TimeSpan>().ok();
            assert_eq!(read, expect.map(|millis| TimeSpan(Duration::from_millis(millis))), "{text}");
            if let Some(time) = read {
                assert_eq!(time.to_string().parse(), Ok(time), "{text} printed and parsed again");
            }
        }
        assert_eq!(TimeSpan(Duration::from_secs(90)).to_string(), "90s");
        assert_eq!(TimeSpan(Duration::from_secs(3600)).to_string(), "1h");
    }

    #[test]
    fn call_limits_are_parsed() {
        let limit = |number| NonZeroUsize::new(number).map(Concurrency::AtMost);
        for (text, expect) in [
            ("auto", Some(Concurrency::Auto)),
            ("unlimited", Some(Concurrency::Unlimited)),
            ("1", limit(1)),
            ("64", limit(64)),
            ("0", None),
            ("-1", None),
            ("Auto", None),
            ("", None),
        ] {
            assert_eq!(text.parse().ok(), expect.map(CallLimit), "{text}");
        }
    }

    #[test]
    fn sizes_are_parsed_and_printed() {
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
            let read = text.parse::<ByteSize>().ok();
            assert_eq!(read, expect.map(ByteSize), "{text}");
            if let Some(size) = read {
                assert_eq!(size.to_string().parse(), Ok(size), "{text} printed and parsed again");
            }
        }
        assert_eq!(ByteSize(4 << 20).to_string(), "4MiB");
    }
}
