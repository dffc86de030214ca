//! Who is calling.
//!
//! [`Jwt`] is for endpoints that protect themselves: it verifies the access token of each request, as a resource server of
//! OAuth 2.1 does, and [`Metadata`] tells clients where to get one (RFC 9728). [`Forward`] is for endpoints before a server
//! that protects itself: it verifies nothing, and keeps the sessions of different credentials apart.
//!
//! Both are an [`Identify`](steadfast_http::Identify), which is all that an endpoint wants to know.
#![forbid(unsafe_code)]

mod algorithm;
mod challenge;
mod claims;
mod forward;
mod jwks;
mod jwt;
mod keyring;
mod metadata;
mod settings;
mod source;
mod token;

pub use algorithm::Algorithm;
pub use claims::{MAX_CLAIM_BYTES, TokenError};
pub use forward::Forward;
pub use jwt::Jwt;
pub use metadata::{Metadata, well_known_path};
pub use settings::{Fetching, Keys, Names, Settings, StartError};
