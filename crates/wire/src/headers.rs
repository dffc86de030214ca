//! Names of the HTTP headers that MCP uses, in the lower case that HTTP libraries want.

pub const SESSION_ID: &str = "mcp-session-id";
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
pub const LAST_EVENT_ID: &str = "last-event-id";
pub const METHOD: &str = "mcp-method";
pub const NAME: &str = "mcp-name";
/// What the header of a mirrored tool parameter starts with.
pub const PARAM_PREFIX: &str = "mcp-param-";
/// Tells nginx and its kin to pass a stream on as it comes.
pub const ACCEL_BUFFERING: &str = "x-accel-buffering";

pub const JSON: &str = "application/json";
pub const EVENT_STREAM: &str = "text/event-stream";
