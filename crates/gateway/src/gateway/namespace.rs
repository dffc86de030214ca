//! Whose session it is: endpoints share a store and no session.

use std::sync::Arc;

use steadfast::Principal;

/// An endpoint's share of all principals. Each of its principals begins with its path and a space, which no path has.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    prefix: Arc<str>,
}

impl Namespace {
    pub(crate) fn of(path: &str) -> Self {
        Self { prefix: format!("{path} ").into() }
    }

    pub(crate) fn path(&self) -> &str {
        self.prefix.trim_end()
    }

    pub(crate) fn has(&self, principal: &Principal) -> bool {
        principal.as_str().starts_with(&*self.prefix)
    }

    /// Two endpoints that follow each other at one path are not the same.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.prefix, &other.prefix)
    }

    pub(super) fn principal(&self, name: &str) -> Principal {
        Principal::new(format!("{}{name}", self.prefix))
    }
}
