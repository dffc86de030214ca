//! Authentication: determines the principal of each HTTP request.
//!
//! - [`Jwt`] makes an endpoint an OAuth 2.1 resource server. It verifies the access token of each
//!   request, and [`Metadata`] tells clients where to get a token (RFC 9728).
//! - [`Forward`] is for endpoints in front of a server that verifies the credentials itself. It
//!   verifies nothing, and gives different credentials different principals, so that their sessions
//!   stay separate.
//!
//! Both implement [`Identify`](steadfast_http::Identify), the interface that an endpoint uses.
//!
//! # Why this crate verifies tokens with its own code
//!
//! Signatures are verified by `ring`, which the workspace already needs for TLS. The parts around
//! them, parsing tokens (RFC 7515), parsing key sets (RFC 7517), checking claims (RFC 7519) and
//! caching keys, are code of this crate for two reasons:
//!
//! - **Build time.** A JWT crate with a JWKS client adds dependencies to every build, among them a
//!   second HTTP client. This crate fetches keys with `steadfast-client`.
//! - **An injected clock.** Expiry of tokens and age of keys are checked with the engine's
//!   [`Clock`](steadfast_engine::Clock), so that tests control time. The usual crates read the
//!   system clock.
#![forbid(unsafe_code)]

mod algorithm;
mod challenge;
mod claims;
mod forward;
mod jwks;
mod jwt;
mod key_cache;
mod key_source;
mod metadata;
mod settings;
mod token;

pub use algorithm::Algorithm;
pub use claims::{MAX_CLAIM_BYTES, TokenError};
pub use forward::Forward;
pub use jwt::Jwt;
pub use metadata::{Metadata, well_known_path};
pub use settings::{Fetching, Keys, PrincipalClaims, Settings, StartError};
