//! A minimal MCP client over HTTP. The steps choose its ids, streams and cuts.

mod exchange;
pub(super) mod messages;
mod session;
mod stream;

pub(super) use session::{RESPONSE_LIMIT, Session};
pub(super) use stream::Stream;
