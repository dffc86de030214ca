//! Parsed header names. Looking up a header by text would parse and hash the text each time.

use http::HeaderName;
use steadfast_wire::headers;

pub(crate) static SESSION_ID: HeaderName = HeaderName::from_static(headers::SESSION_ID);
pub(crate) static PROTOCOL_VERSION: HeaderName = HeaderName::from_static(headers::PROTOCOL_VERSION);
pub(crate) static LAST_EVENT_ID: HeaderName = HeaderName::from_static(headers::LAST_EVENT_ID);
pub(crate) static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static(headers::IDEMPOTENCY_KEY);
pub(crate) static METHOD: HeaderName = HeaderName::from_static(headers::METHOD);
pub(crate) static NAME: HeaderName = HeaderName::from_static(headers::NAME);
pub(crate) static ACCEL_BUFFERING: HeaderName = HeaderName::from_static(headers::ACCEL_BUFFERING);
