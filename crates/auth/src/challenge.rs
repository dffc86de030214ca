//! The `WWW-Authenticate` header of refused requests: why the token was refused, which scopes a
//! token needs, and where to get a token (RFC 6750, RFC 9728).

use std::fmt::Write as _;

use crate::claims::TokenError;

/// Builds `WWW-Authenticate` values. Holds the parts that all requests share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// The URL of the metadata document.
    metadata: String,
    /// The required scopes, separated by spaces.
    scope: String,
}

impl Challenge {
    pub(crate) fn new(metadata: String, scopes: &[String]) -> Self {
        Self { metadata, scope: scopes.join(" ") }
    }

    /// Returns the challenge for a request without a token. It has no error code, as RFC 6750
    /// (section 3.1) demands.
    pub(crate) fn missing(&self) -> String {
        self.write(None)
    }

    /// Returns the challenge for a request whose token is not valid.
    pub(crate) fn invalid(&self, error: &TokenError) -> String {
        self.write(Some(("invalid_token", error)))
    }

    /// Returns the challenge for a request whose token is valid but lacks a scope.
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

/// Displays a text as an HTTP quoted string. Omits everything except printable ASCII.
struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('"')?;
        for ch in self.0.chars().filter(|ch| matches!(ch, ' '..='~')) {
            if matches!(ch, '"' | '\\') {
                f.write_char('\\')?;
            }
            f.write_char(ch)?;
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_name_the_error_and_the_scopes() {
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
