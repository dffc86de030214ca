//! Marks: every message that a server sends because of a call contains the name of the call, so
//! that a checker can find the call of a message on any stream.

/// The text before the name of a call.
const MARK: &str = "call=";

/// Returns the mark of a call. The name of a call has letters, digits, dots and dashes.
pub fn mark(call: &str) -> String {
    format!("{MARK}{call}")
}

/// Returns the names of the calls whose marks a text contains.
pub fn marks(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(MARK).map(|(at, _)| name_at(&text[at + MARK.len()..]))
}

/// Returns the value of `key=value` in a text.
pub fn word<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut places = text.match_indices(key);
    places.find_map(|(at, _)| {
        let starts = !text[..at].ends_with(is_in_name);
        let value = text[at + key.len()..].strip_prefix('=')?;
        starts.then(|| name_at(value))
    })
}

fn name_at(text: &str) -> &str {
    let end = text.find(|c| !is_in_name(c)).unwrap_or(text.len());
    &text[..end]
}

fn is_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '.' || c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_anywhere_in_a_text() {
        let text = format!(r#"{{"text":"{} step=3","other":"{}\n"}}"#, mark("a-1.2"), mark("b"));
        assert_eq!(marks(&text).collect::<Vec<_>>(), ["a-1.2", "b"]);
        assert_eq!(marks("nothing").count(), 0);
        assert_eq!(word(&text, "step"), Some("3"));
        assert_eq!(word("overstep=1 step=2", "step"), Some("2"));
        assert_eq!(word(&text, "ste"), None);
    }
}
