//! What an endpoint reads of a request before its body: checks of the head, the client's identity,
//! CORS and headers.

pub(crate) mod cors;
pub(crate) mod guard;
pub(crate) mod header_names;
pub(crate) mod headers;
pub(crate) mod identify;
