//! Checks of the `Accept` and `Content-Type` headers.

use crate::headers;

/// Returns true if a `Content-Type` is JSON in UTF-8.
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

/// Returns true if an `Accept` value allows both media types that a POST can be answered with.
pub fn accepts_json_and_sse(accept: &str) -> bool {
    // Nearly every client sends exactly this text.
    accept == "application/json, text/event-stream"
        || (accepts(accept, headers::JSON) && accepts(accept, headers::EVENT_STREAM))
}

/// Returns true if an `Accept` value allows a media type. Wildcards allow it, `q=0` forbids it.
pub fn accepts(accept: &str, media_type: &str) -> bool {
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
            assert_eq!(accepts(value, headers::JSON), json, "{value}");
            assert_eq!(accepts(value, headers::EVENT_STREAM), sse, "{value}");
        }
    }
}
