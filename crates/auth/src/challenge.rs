//! `WWW-Authenticate`: what a client has to show, and where it gets it (RFC 6750, RFC 9728).

use std::fmt::Write as _;

use crate::claims::TokenError;

/// The parts of a challenge that are the same for all requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    metadata: String,
    /// What tokens need, separated by spaces.
    scope: String,
}

impl Challenge {
    pub(crate) fn new(metadata: String, scopes: &[String]) -> Self {
        Self { metadata, scope: scopes.join(" ") }
    }

    /// For a request that showed nothing: whoever does not know what is wanted has made no error.
    pub(crate) fn missing(&self) -> String {
        self.write(None)
    }

    pub(crate) fn invalid(&self, error: &TokenError) -> String {
        self.write(Some(("invalid_token", error)))
    }

    pub(crate) fn insufficient(&self) -> String {
        self.write(Some(("insufficient_scope", &TokenError::Scope)))
    }

    fn write(&self, error: Option<(&str, &TokenError)>) -> String {
        let mut text = "Bearer ".to_owned();
        // Writing to a string does not fail.
        let _ = write!(text, "resource_metadata={}", Quoted(&self.metadata));
        if let Some((code, error)) = error {
            let _ = write!(text, ", error=\"{code}\", error_description={}", Quoted(&error.to_string()));
        }
        if !self.scope.is_empty() {
            let _ = write!(text, ", scope={}", Quoted(&self.scope));
        }
        text
    }
}

/// A quoted string of HTTP. What cannot be in one is left out.
struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('"')?;
        for letter in self.0.chars().filter(|letter| matches!(letter, ' '..='~')) {
            if matches!(letter, '"' | '\\') {
                f.write_char('\\')?;
            }
            f.write_char(letter)?;
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_say_what_is_wanted() {
        let url = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";
        let plain = Challenge::new(url.to_owned(), &[]);
        assert_eq!(plain.missing(), format!("Bearer resource_metadata=\"{url}\""));
        assert_eq!(
            plain.invalid(&TokenError::Expired),
            format!(
                "Bearer resource_metadata=\"{url}\", error=\"invalid_token\", \
                 error_description=\"the token has expired\""
            )
        );
        let scoped = Challenge::new(url.to_owned(), &["mcp:read".to_owned(), "mcp:write".to_owned()]);
        assert_eq!(
            scoped.missing(),
            format!("Bearer resource_metadata=\"{url}\", scope=\"mcp:read mcp:write\"")
        );
        assert_eq!(
            scoped.insufficient(),
            format!(
                "Bearer resource_metadata=\"{url}\", error=\"insufficient_scope\", \
                 error_description=\"the token lacks a scope\", scope=\"mcp:read mcp:write\""
            )
        );
        let odd = Challenge::new("a\"b\\c\r\nd\u{e9}".to_owned(), &[]);
        assert_eq!(odd.missing(), r#"Bearer resource_metadata="a\"b\\cd""#);
    }
}
