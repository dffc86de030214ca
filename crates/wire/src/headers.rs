//! The HTTP header names and media types that MCP uses. The names are in lower case, as HTTP
//! libraries expect.

pub const SESSION_ID: &str = "mcp-session-id";
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
pub const LAST_EVENT_ID: &str = "last-event-id";
/// Names a call, so that a repetition of it is not executed again.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
pub const METHOD: &str = "mcp-method";
pub const NAME: &str = "mcp-name";
/// The prefix of headers that repeat a tool argument, see
/// [`header_annotations`](crate::header_annotations).
pub const PARAM_PREFIX: &str = "mcp-param-";
/// Disables response buffering in nginx and similar proxies.
pub const ACCEL_BUFFERING: &str = "x-accel-buffering";

pub const JSON: &str = "application/json";
pub const EVENT_STREAM: &str = "text/event-stream";
