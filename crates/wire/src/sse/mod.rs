//! Server-sent events (SSE): the format of a stream of server messages.
//!
//! [`encode`] writes frames into a buffer. [`Decoder`] reads a stream chunk by chunk, in bounded
//! memory. Both follow the [WHATWG event stream] format, with one exception that [`Event`]
//! describes.
//!
//! [WHATWG event stream]:
//! https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream

mod decode;
pub mod encode;
#[cfg(test)]
mod tests;

pub use decode::{DecodeError, Decoder, Ending, Event, Kind, Limits};

/// Returns the position of the first CR or LF.
///
/// Payloads are long and rarely contain a line end. So the search tests whole blocks without a
/// branch per byte, which lets the compiler use vector instructions. It cannot do so for a loop
/// that may stop at each byte.
fn find_line_end(bytes: &[u8]) -> Option<usize> {
    let (blocks, _) = bytes.as_chunks::<64>();
    let clean = blocks.iter().take_while(|block| !block.iter().fold(false, |hit, b| hit | is_line_end(*b)));
    let start = clean.count() * 64;
    bytes[start..].iter().position(|b| is_line_end(*b)).map(|at| start + at)
}

fn is_line_end(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}
