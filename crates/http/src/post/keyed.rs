//! Idempotency keys of requests: refuses keys that are invalid, or that another request has used.

use http::request::Parts;
use steadfast_engine::Principal;
use steadfast_wire::{IdempotencyKey, Message};

use super::{Endpoint, Problem};
use crate::request::header_names;
use crate::request::headers::single_header;

impl Endpoint {
    /// Checks the keys of the requests of a POST. A header names one request, so it cannot be used
    /// with several.
    pub(super) async fn check_keys(
        &self,
        parts: &Parts,
        requests: &[Message<'_>],
        principal: &Principal,
    ) -> Result<(), Problem> {
        let header = single_header(parts, &header_names::IDEMPOTENCY_KEY)?;
        if header.is_some() && requests.len() > 1 {
            return Err(Problem::bad_request("The header Idempotency-Key names one request, not several."));
        }
        for request in requests {
            let key = IdempotencyKey::read(header, request.params)
                .map_err(|error| Problem::bad_request(format!("This request is not accepted: {error}.")))?;
            if let Some(key) = key {
                self.engine.check_key(principal, &key, (&request.method, request.params)).await?;
            }
        }
        Ok(())
    }
}
