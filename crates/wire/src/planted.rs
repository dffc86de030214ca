//! Bugs on purpose, to see who finds them: `cargo xtask chaos --planted`.
//!
//! They exist in builds with the feature `planted` alone, which nothing but that command turns on; and there one at a time, chosen by
//! the variable `STEADFAST_PLANTED`. Everywhere else this is a constant, and what it guards is not compiled.

/// Whether this bug was planted.
#[cfg(not(feature = "planted"))]
pub const fn planted(_name: &str) -> bool {
    false
}

/// Whether this bug was planted.
#[cfg(feature = "planted")]
pub fn planted(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("STEADFAST_PLANTED").ok()).as_deref() == Some(name)
}

#[cfg(all(test, not(feature = "planted")))]
mod tests {
    use super::*;

    /// Not even the compiler has to ask.
    const NEVER: bool = planted("anything");

    #[test]
    fn nothing_is_planted_in_a_normal_build() {
        const { assert!(!NEVER) };
    }
}
