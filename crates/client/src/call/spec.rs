//! What a call sends: its request id, method and parameters.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;
use steadfast_wire::{RawObject, RequestId};

use super::CallObserver;
use crate::error::Error;

/// The request of a call, and the call's observer.
pub(crate) struct CallSpec {
    pub(crate) id: RequestId,
    pub(crate) method: String,
    pub(crate) params: Option<Params>,
    pub(crate) progress: bool,
    pub(crate) observer: Arc<dyn CallObserver>,
}

impl CallSpec {
    /// Returns the parameters, with `_meta.progressToken` added if progress was requested. The
    /// token is the id of the call's first request.
    pub(crate) fn params_with_token(&self) -> Option<RawObject> {
        let params = self.params.as_ref().map(Params::members);
        if !self.progress {
            return params;
        }
        let mut params = params.unwrap_or_default();
        let mut meta = params.get("_meta").and_then(|meta| RawObject::parse(meta).ok()).unwrap_or_default();
        meta.set("progressToken", &self.id.to_string());
        params.set("_meta", &meta.to_string());
        Some(params)
    }

    /// Returns [`params_with_token`](Self::params_with_token) as JSON text. Borrows the
    /// application's text if nothing is added.
    pub(crate) fn params_text(&self) -> Option<Cow<'_, str>> {
        match &self.params {
            Some(params) if !self.progress => Some(params.0.as_str().into()),
            _ => self.params_with_token().map(|params| params.to_string().into()),
        }
    }
}

impl fmt::Debug for CallSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallSpec").field("id", &self.id).field("method", &self.method).finish_non_exhaustive()
    }
}

/// The parameters of a call: the JSON text of an object.
#[derive(Clone, Debug)]
pub(crate) struct Params(String);

impl Params {
    pub(super) fn new(text: &str) -> Result<Self, Error> {
        let is_json = serde_json::from_str::<&RawValue>(text).is_ok();
        if !is_json || !text.trim_ascii_start().starts_with('{') {
            return Err(Error::BadParams);
        }
        Ok(Self(text.to_owned()))
    }

    fn members(&self) -> RawObject {
        // `new` has checked that the text is an object.
        RawObject::parse(&self.0).unwrap_or_default()
    }
}
