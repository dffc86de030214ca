//! Media types in `Accept` and `Content-Type`, as far as MCP needs them.

use crate::headers;

/// Whether a `Content-Type` says JSON. Only UTF-8 is legal, so another charset is refused.
pub fn is_json(content_type: &str) -> bool {
    if content_type == headers::JSON {
        return true;
    }
    let mut parts = content_type.split(';');
    let essence = parts.next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(headers::JSON)
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
                value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

/// Whether an `Accept` value admits both kinds of answer that a POST can get.
pub fn admits_answers(accept: &str) -> bool {
    // What nearly every client sends, letter for letter.
    accept == "application/json, text/event-stream"
        || (admits(accept, headers::JSON) && admits(accept, headers::EVENT_STREAM))
}

/// Whether an `Accept` value admits a media type, wildcards included, `q=0` excluded.
pub fn admits(accept: &str, media_type: &str) -> bool {
    accept.split(',').any(|range| {
        let mut parts = range.split(';');
        let essence = parts.next().unwrap_or_default().trim();
        let refused = parts.any(|parameter| {
            parameter.split_once('=').is_some_and(|(name, value)| {
                name.trim().eq_ignore_ascii_case("q") && value.trim().parse::<f32>() == Ok(0.0)
            })
        });
        !refused && matches(essence, media_type)
    })
}

fn matches(range: &str, media_type: &str) -> bool {
    if range == "*/*" || range.eq_ignore_ascii_case(media_type) {
        return true;
    }
    match (range.strip_suffix("/*"), media_type.split_once('/')) {
        (Some(wanted), Some((kind, _))) => wanted.eq_ignore_ascii_case(kind),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types() {
        for (value, expect) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json;charset=\"utf-8\"", true),
            ("application/json; charset=latin1", false),
            ("application/jsonx", false),
            ("text/plain", false),
            ("", false),
        ] {
            assert_eq!(is_json(value), expect, "{value}");
        }
    }

    #[test]
    fn accept_ranges() {
        for (value, json, sse) in [
            ("application/json, text/event-stream", true, true),
            ("text/event-stream", false, true),
            ("*/*", true, true),
            ("application/*;q=0.5, text/*", true, true),
            ("application/json;q=0, text/event-stream", false, true),
            ("application/jsonp", false, false),
            ("", false, false),
        ] {
            assert_eq!(admits(value, headers::JSON), json, "{value}");
            assert_eq!(admits(value, headers::EVENT_STREAM), sse, "{value}");
        }
    }
}
