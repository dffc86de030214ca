//! Random streams in random chunks, compared with a simple model of the specification.

use std::mem;

use proptest::prelude::*;

use super::{AMPLE, DecodeError, Ending, Event, Kind, Limits, Outcome, encode, read};

/// Decodes the whole input at once, literally as the specification says. The decoder must return
/// the same.
fn model(limits: Limits, input: &[u8]) -> Outcome {
    let mut seen = Vec::new();
    match run_model(limits, input, &mut seen) {
        Ok(ending) => (seen, ending),
        Err(error) => {
            seen.push(Err(error));
            (seen, Ending::Truncated)
        }
    }
}

fn run_model(
    limits: Limits,
    input: &[u8],
    seen: &mut Vec<Result<Event, DecodeError>>,
) -> Result<Ending, DecodeError> {
    let fit = |line: &[u8]| match line.len() > limits.max_line_bytes {
        true => Err(DecodeError::LineTooLong { limit: limits.max_line_bytes }),
        false => Ok(()),
    };
    let (lines, unfinished) = split_lines(input);
    let (mut event, mut data, mut begun) = (event_of("", None, None), Vec::new(), false);
    for (n, line) in lines.into_iter().enumerate() {
        fit(line)?;
        let line = if n == 0 { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) } else { line };
        if !line.is_empty() {
            begun |= store_field(&mut event, &mut data, line);
            if data.len() > limits.max_event_bytes + 1 {
                return Err(DecodeError::EventTooLarge { limit: limits.max_event_bytes });
            }
            continue;
        }
        let mut done = mem::replace(&mut event, event_of("", None, None));
        let dispatched = !data.is_empty() || done.id.is_some() || done.retry_ms.is_some();
        data.pop();
        done.data = mem::take(&mut data).into();
        seen.extend(dispatched.then_some(Ok(done)));
        begun = false;
    }
    fit(unfinished)?;
    Ok(if begun || !unfinished.is_empty() { Ending::Truncated } else { Ending::Clean })
}

/// Returns the complete lines, and the incomplete rest.
fn split_lines(mut rest: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let mut lines = Vec::new();
    while let Some(end) = rest.iter().position(|b| b"\r\n".contains(b)) {
        lines.push(&rest[..end]);
        let width = if rest[end..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = &rest[end + width..];
    }
    (lines, rest)
}

/// Stores a field. Returns true if the field is known.
fn store_field(event: &mut Event, data: &mut Vec<u8>, line: &[u8]) -> bool {
    let mut parts = line.splitn(2, |b| *b == b':');
    let name = parts.next().unwrap_or_default();
    let value = parts.next().unwrap_or_default();
    let value = value.strip_prefix(b" ").unwrap_or(value);
    let text = String::from_utf8_lossy(value).into_owned();
    match name {
        b"data" => data.extend([value, b"\n"].concat()),
        b"event" if text.is_empty() || text == "message" => event.kind = Kind::Message,
        b"event" => event.kind = Kind::Other(text),
        b"id" if !text.contains('\0') => event.id = Some(text),
        b"retry" if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
            event.retry_ms = Some(text.parse().unwrap_or(u64::MAX));
        }
        _ => return false,
    }
    true
}

fn event_of(data: &str, id: Option<&str>, retry_ms: Option<u64>) -> Event {
    Event { kind: Kind::Message, data: data.to_owned().into(), id: id.map(str::to_owned), retry_ms }
}

/// Random fragments of SSE streams, so that the tests reach every branch.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let fragments: &[&[u8]] = &[
        b"data",
        b"data:",
        b"data: ",
        b"id:",
        b"id: 1",
        b"event:",
        b"event: message",
        b"retry:",
        b"retry: 7",
        b":",
        b" ",
        b"\r",
        b"\n",
        b"\r\n",
        b"\n\n",
        b"\0",
        b"x",
        b"\xEF\xBB\xBF",
        b"\xEF",
        b"\xFF",
        b"{\"jsonrpc\":\"2.0\"}",
    ];
    let fragment = prop_oneof![
        9 => prop::sample::select(fragments).prop_map(<[u8]>::to_vec),
        1 => any::<u8>().prop_map(|b| vec![b]),
    ];
    prop::collection::vec(fragment, 0..60).prop_map(|fragments| fragments.concat())
}

fn limits_of_any_size() -> impl Strategy<Value = Limits> {
    let size = || prop_oneof![0..24usize, Just(1 << 20)];
    (size(), size()).prop_map(|(max_line_bytes, max_event_bytes)| Limits { max_line_bytes, max_event_bytes })
}

fn cut(mut input: &[u8], sizes: Vec<usize>) -> Vec<&[u8]> {
    let mut chunks = Vec::new();
    for size in sizes {
        let (head, tail) = input.split_at(size.min(input.len()));
        chunks.push(head);
        input = tail;
    }
    chunks.push(input);
    chunks
}

proptest! {
    #[test]
    fn any_chunks_are_decoded_as_the_specification_says(
        input in stream(),
        limits in limits_of_any_size(),
        sizes in prop::collection::vec(0..9usize, 0..80),
    ) {
        let expected = model(limits, &input);
        prop_assert_eq!(&read(limits, [&input[..]]), &expected);
        prop_assert_eq!(&read(limits, cut(&input, sizes)), &expected);
    }

    #[test]
    fn encoded_frames_are_decoded(
        messages in prop::collection::vec(("[^\r\n\0]{0,12}", "(\r\n|\r|\n|[ -~]|é|[a-z]{90}){0,20}"), 0..6),
        sizes in prop::collection::vec(0..99usize, 0..40),
    ) {
        let mut out = Vec::new();
        let mut expected = vec![Ok(event_of("", Some("first"), Some(250)))];
        encode::priming(&mut out, "first", 250);
        for (id, text) in messages {
            encode::comment(&mut out, &text);
            let before = out.len();
            encode::event(&mut out, &id, text.as_bytes());
            let (written, bound) = (out.len() - before, encode::event_len(id.len(), text.as_bytes()));
            prop_assert!(written == bound || (written < bound && text.contains("\r\n")));
            let lines = text.replace("\r\n", "\n").replace('\r', "\n");
            expected.push(Ok(event_of(&lines, Some(&id), None)));
        }
        prop_assert_eq!(read(AMPLE, cut(&out, sizes)), (expected, Ending::Clean));
    }
}
