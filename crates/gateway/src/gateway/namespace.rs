//! Whose session it is: endpoints share a store and no session.

use std::sync::Arc;

use steadfast::Principal;

/// An endpoint's share of all principals. Each of its principals begins with its identity and a
/// space, which no identity has.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    prefix: Arc<str>,
    path: Arc<str>,
}

impl Namespace {
    pub(crate) fn new(identity: &str, path: &str) -> Self {
        Self { prefix: format!("{identity} ").into(), path: path.into() }
    }

    /// For people, in metrics and logs. It decides nothing.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn identity(&self) -> &str {
        self.prefix.trim_end()
    }

    pub(crate) fn has(&self, principal: &Principal) -> bool {
        principal.as_str().starts_with(&*self.prefix)
    }

    /// Two endpoints that follow each other with one identity are not the same.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.prefix, &other.prefix)
    }

    pub(super) fn principal(&self, name: &str) -> Principal {
        Principal::new(format!("{}{name}", self.prefix))
    }
}

/// The identity of the endpoint that a principal is of.
pub(super) fn identity_of(principal: &Principal) -> &str {
    principal.as_str().split(' ').next().unwrap_or_default()
}
