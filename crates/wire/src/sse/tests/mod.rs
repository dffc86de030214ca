//! Tests of the SSE decoder with every division of the input into chunks, and of the encoder.

mod properties;

use bytes::BytesMut;

use super::{DecodeError, Decoder, Ending, Event, Kind, Limits, encode};

const AMPLE: Limits = Limits { max_line_bytes: 1 << 20, max_event_bytes: 1 << 20 };

type Outcome = (Vec<Result<Event, DecodeError>>, Ending);

fn read<'a>(limits: Limits, chunks: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut decoder = Decoder::new(limits);
    let mut seen = Vec::new();
    for mut chunk in chunks {
        while let Some(item) = decoder.decode(&mut chunk).transpose() {
            let failed = item.is_err();
            seen.push(item);
            if failed {
                return (seen, decoder.finish());
            }
        }
        assert!(chunk.is_empty(), "None means that the whole chunk was consumed");
    }
    (seen, decoder.finish())
}

/// Decodes `input` in one chunk, byte by byte, and in every division into two chunks. Compares the
/// events with `expect`, in the notation of [`show`].
#[track_caller]
fn check(input: &[u8], expect: &[&str]) {
    check_within(AMPLE, input, expect);
}

#[track_caller]
fn check_within(limits: Limits, input: &[u8], expect: &[&str]) {
    let whole = read(limits, [input]);
    let shown: Vec<_> = whole.0.iter().map(show).collect();
    assert_eq!(shown, expect, "in one chunk");
    assert_eq!(read(limits, input.chunks(1)), whole, "byte by byte");
    for at in 0..=input.len() {
        let (head, tail) = input.split_at(at);
        assert_eq!(read(limits, [head, tail]), whole, "cut at {at}");
    }
}

/// Formats an event as `name#id "data" ~retry`. The name `message` and absent fields are left out.
fn show(item: &Result<Event, DecodeError>) -> String {
    let event = match item {
        Ok(event) => event,
        Err(error) => return format!("{error:?}"),
    };
    let name = if let Kind::Other(name) = &event.kind { name } else { "" };
    let id = event.id.as_ref().map(|id| format!("#{id}")).unwrap_or_default();
    let retry = event.retry_ms.map(|ms| format!(" ~{ms}")).unwrap_or_default();
    format!("{name}{id} \"{}\"{retry}", event.data.escape_ascii()).trim_start().to_owned()
}

#[test]
fn fields() {
    check(b"data: a\n\n", &[r#""a""#]);
    check(b"data:a\n\ndata:  a\n\n", &[r#""a""#, r#"" a""#]);
    check(b"event: endpoint\ndata: /m?s=1\n\n", &[r#"endpoint "/m?s=1""#]);
    check(b"event: x\nevent: message\ndata: a\n\nevent: x\nevent\ndata: b\n\n", &[r#""a""#, r#""b""#]);
    check(b"event: x\n\ndata: a\n\n", &[r#""a""#]);
    check(b"id: 7\ndata: a:b\n\n", &[r#"#7 "a:b""#]);
    check(b": ping\n\n:\n\ndata: a\n:data: b\n\n", &[r#""a""#]);
    check(b"DATA: a\ndatas: b\n data: c\nfoo\nfoo: bar\n\n", &[]);
    check(b"\n\n\n", &[]);
    check(b"data: \xFF\xFE\nid: a\xFF\n\n", &["#a\u{FFFD} \"\\xff\\xfe\""]);
}

#[test]
fn data_lines_are_joined() {
    check(b"data: a\ndata\ndata: b\n\n", &[r#""a\n\nb""#]);
    check(b"data: a\nid: 1\ndata: b\n\n", &[r#"#1 "a\nb""#]);
    // The example of the specification: an empty event, an event of one LF, and an incomplete
    // event.
    check(b"data\n\ndata\ndata\n\ndata:", &[r#""""#, r#""\n""#]);
}

#[test]
fn line_ends() {
    check(b"data: a\r\rdata: b\r\r", &[r#""a""#, r#""b""#]);
    check(b"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", &[r#""a\nb""#, r#""c""#]);
    check(b"data: a\n\rdata: b\r\n\n", &[r#""a""#, r#""b""#]);
    check(b"data: a\r\n\rdata: b\n\r\n", &[r#""a""#, r#""b""#]);
}

#[test]
fn byte_order_mark() {
    check(b"\xEF\xBB\xBFdata: a\n\n", &[r#""a""#]);
    check(b"\xEF\xBB\xBF\ndata: a\n\n", &[r#""a""#]);
    check(b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\ndata: b\n\n", &[r#""b""#]);
    check(b"\xEF\xBBdata: a\ndata: b\n\n", &[r#""b""#]);
    check(b"data: a\n\xEF\xBB\xBFdata: b\n\n", &[r#""a""#]);
}

#[test]
fn ids() {
    check(b"id: 1\nid: a\0b\ndata: x\n\n", &[r#"#1 "x""#]);
    check(b"id: 1\nid: 2\ndata: x\n\ndata: y\n\n", &[r#"#2 "x""#, r#""y""#]);
    check(b"id\ndata: x\n\n", &[r##"# "x""##]);
}

#[test]
fn retries() {
    check(b"retry: 1500\n\n", &[r#""" ~1500"#]);
    check(b"retry: 15s\n\nretry: -1\n\nretry: +1\n\nretry:\n\nretry: 1 \n\n", &[]);
    check(b"retry: 5\nretry: x\ndata: a\n\n", &[r#""a" ~5"#]);
    check(b"retry: 99999999999999999999999\n\n", &[r#""" ~18446744073709551615"#]);
}

#[test]
fn blocks_without_data_are_events_if_they_have_an_id_or_a_retry_time() {
    check(b"id: 1\ndata: \n\n", &[r##"#1 """##]);
    check(b"id: 1\n\n", &[r##"#1 """##]);
    check(b"id: 1\nretry: 5\n\ndata: a\n\n", &[r##"#1 "" ~5"##, r#""a""#]);
}

#[test]
fn the_last_event_id_stays_after_events_without_an_id() {
    let steps: [(&[u8], &str); 6] = [
        (b"data: a\n\n", ""),
        (b"id: 1\ndata: a\n", ""),
        (b"\n", "1"),
        (b"data: b\n\nid: x\0\ndata: c\n\n", "1"),
        (b"id: 2\n\n", "2"),
        (b"id\n\n", ""),
    ];
    let mut decoder = Decoder::new(AMPLE);
    for (mut chunk, id) in steps {
        while decoder.decode(&mut chunk).expect("within the limits").is_some() {}
        assert_eq!(decoder.last_event_id(), id);
    }
}

#[test]
fn endings() {
    let clean: [&[u8]; 6] = [b"", b"\n", b"data: a\n\n", b"data: a\r\r", b"data: a\r\n\r\n", b": bye\n"];
    let truncated: [&[u8]; 7] =
        [b"d", b"data: a", b"data: a\n", b"data: a\r", b"data\r\n", b"id: 1\n", b"event: message\n"];
    for input in clean {
        assert_eq!(read(AMPLE, [input]).1, Ending::Clean, "{}", input.escape_ascii());
    }
    for input in truncated {
        assert_eq!(read(AMPLE, [input]).1, Ending::Truncated, "{}", input.escape_ascii());
    }
}

#[test]
fn limits() {
    let line = |max_line_bytes| Limits { max_line_bytes, ..AMPLE };
    check_within(line(7), b"data: a\r\n\r\n", &[r#""a""#]);
    check_within(line(6), b"data:a\n\ndata: a\n\n", &[r#""a""#, "LineTooLong { limit: 6 }"]);
    check_within(line(6), b":comment", &["LineTooLong { limit: 6 }"]);
    check_within(line(9), b"\xEF\xBB\xBFdata:a\n\n", &[r#""a""#]);
    check_within(line(0), b"\r\n\n\r", &[]);
    check_within(line(usize::MAX), b"data: a\n\n", &[r#""a""#]);

    let event = |max_event_bytes| Limits { max_event_bytes, ..AMPLE };
    check_within(event(3), b"id: 12345\nevent: 12345\ndata: a\ndata: b\n\n", &[r#"12345#12345 "a\nb""#]);
    check_within(event(2), b"data: ab\n\ndata: a\ndata: b\n\n", &[r#""ab""#, "EventTooLarge { limit: 2 }"]);
    check_within(event(2), b"data: abc\n\n", &["EventTooLarge { limit: 2 }"]);
    check_within(event(1), b"data\ndata\ndata\n\n", &["EventTooLarge { limit: 1 }"]);
    check_within(event(0), b"data\n\n", &[r#""""#]);
}

#[test]
fn an_error_is_final() {
    let mut decoder = Decoder::new(Limits { max_line_bytes: 4, max_event_bytes: 4 });
    let refused = Err(DecodeError::LineTooLong { limit: 4 });
    assert_eq!(decoder.decode(&mut &b"data: a\n\n"[..]), refused);
    assert_eq!(decoder.decode(&mut &b"id:1\n\n"[..]), refused);
    assert_eq!((decoder.buffered(), decoder.finish()), (0, Ending::Truncated));
}

#[test]
fn a_line_without_an_end_is_refused_at_the_limit() {
    const LIMIT: usize = 1 << 20;
    let line = vec![b'x'; 10_000_000];
    for size in [1, 4096, line.len()] {
        let mut decoder = Decoder::new(Limits { max_line_bytes: LIMIT, max_event_bytes: LIMIT });
        let mut consumed = 0;
        let error = line.chunks(size).find_map(|mut chunk| {
            let error = decoder.decode(&mut chunk).err();
            consumed += if error.is_none() { size } else { 0 };
            assert!(decoder.buffered() <= LIMIT);
            error
        });
        assert_eq!(error, Some(DecodeError::LineTooLong { limit: LIMIT }));
        assert!(consumed <= LIMIT && LIMIT < consumed + size);
    }
}

#[test]
fn encoded_frames() {
    fn frame(write: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        write(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }
    assert_eq!(frame(|out| encode::event(out, "7", b"{}")), "event: message\nid: 7\ndata: {}\n\n");
    assert_eq!(frame(|out| encode::event_without_id(out, b"{}")), "event: message\ndata: {}\n\n");
    assert_eq!(
        frame(|out| encode::event_without_id(out, b"a\r\nb\rc\n")),
        "event: message\ndata: a\ndata: b\ndata: c\ndata: \n\n"
    );
    assert_eq!(
        frame(|out| encode::event(out, "1\r\n\ndata: x\0", b"")),
        "event: message\nid: 1data: x\ndata: \n\n"
    );
    assert_eq!(frame(|out| encode::priming(out, "s-0", 500)), "id: s-0\nretry: 500\ndata: \n\n");
    assert_eq!(frame(|out| encode::retry(out, 3000)), "retry: 3000\n\n");
    assert_eq!(frame(|out| encode::comment(out, "ping")), ": ping\n\n");
    assert_eq!(frame(|out| encode::comment(out, "a\ndata: b")), ": a\n: data: b\n\n");
}
