//! Server-sent events: the framing in which a server's messages travel.
//!
//! [`encode`] writes frames into a buffer, [`Decoder`] reads any server's stream, chunk by chunk, in bounded
//! memory. Both follow the [WHATWG event stream] format; the one departure is told at [`Event`].
//!
//! [WHATWG event stream]: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream

mod decode;
pub mod encode;
#[cfg(test)]
mod tests;

pub use decode::{DecodeError, Decoder, Ending, Event, Kind, Limits};

/// Where the first CR or LF is.
///
/// Payloads are long and seldom hold a line end, so whole blocks are tested without a branch per byte: the
/// compiler makes vector instructions of the inner loop, which it cannot do for a search that may stop at
/// each byte.
fn find_line_end(bytes: &[u8]) -> Option<usize> {
    let (blocks, _) = bytes.as_chunks::<64>();
    let clean = blocks.iter().take_while(|block| !block.iter().fold(false, |hit, b| hit | is_line_end(*b)));
    let start = clean.count() * 64;
    bytes[start..].iter().position(|b| is_line_end(*b)).map(|at| start + at)
}

fn is_line_end(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}
