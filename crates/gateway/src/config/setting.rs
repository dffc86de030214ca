//! Groups of settings: as they are written, and as the crates below take them. The defaults are theirs.

use std::time::Duration;

use super::values::{Size, Time};

/// A value as it is written, for one as it is used.
pub(crate) trait Setting<Plain> {
    fn written(plain: Plain) -> Self;
    fn put(&self, plain: &mut Plain);
}

macro_rules! same {
    ($($kind:ty),+) => {
        $(impl Setting<$kind> for $kind {
            fn written(plain: $kind) -> Self {
                plain
            }

            fn put(&self, plain: &mut $kind) {
                *plain = *self;
            }
        })+
    };
}
same!(u32, u64, usize, bool);

impl Setting<Duration> for Time {
    fn written(plain: Duration) -> Self {
        Self(plain)
    }

    fn put(&self, plain: &mut Duration) {
        *plain = self.0;
    }
}

impl Setting<Option<Duration>> for Option<Time> {
    fn written(plain: Option<Duration>) -> Self {
        plain.map(Time)
    }

    fn put(&self, plain: &mut Option<Duration>) {
        *plain = self.map(|time| time.0);
    }
}

/// A time whose default depends on something else.
impl Setting<Duration> for Option<Time> {
    fn written(_plain: Duration) -> Self {
        None
    }

    fn put(&self, plain: &mut Duration) {
        if let Some(time) = self {
            *plain = time.0;
        }
    }
}

impl Setting<u64> for Size {
    fn written(plain: u64) -> Self {
        Self(plain)
    }

    fn put(&self, plain: &mut u64) {
        *plain = self.0;
    }
}

impl Setting<usize> for Size {
    fn written(plain: usize) -> Self {
        Self(plain as u64)
    }

    /// More than the machine can address is no limit at all.
    fn put(&self, plain: &mut usize) {
        *plain = usize::try_from(self.0).unwrap_or(usize::MAX);
    }
}

/// A table of the file whose keys are fields of a struct of another crate, by the same names.
macro_rules! settings {
    ($(#[$doc:meta])* $name:ident of $plain:ty = $default:expr; { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
        #[serde(default)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub(crate) $field: $kind,)+
        }

        impl Default for $name {
            fn default() -> Self {
                let plain: $plain = $default;
                Self { $($field: $crate::config::setting::Setting::written(plain.$field),)+ }
            }
        }

        impl $name {
            pub(crate) fn apply(&self, plain: &mut $plain) {
                $($crate::config::setting::Setting::put(&self.$field, &mut plain.$field);)+
            }
        }
    };
}
pub(crate) use settings;
