//! The namespace of an endpoint: endpoints share a store, and no session belongs to two of them.

use std::sync::Arc;

use steadfast::Principal;

/// The principals of one endpoint. Each starts with the identity of the endpoint and a space. No
/// identity contains a space.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    prefix: Arc<str>,
    path: Arc<str>,
}

impl Namespace {
    pub(crate) fn new(identity: &str, path: &str) -> Self {
        Self { prefix: format!("{identity} ").into(), path: path.into() }
    }

    /// The path of the endpoint, for metrics and logs only.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn identity(&self) -> &str {
        self.prefix.trim_end()
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn contains(&self, principal: &Principal) -> bool {
        principal.as_str().starts_with(&*self.prefix)
    }

    /// Returns true for clones of one namespace. Two endpoints that have the same identity, one
    /// after the other, have different namespaces.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.prefix, &other.prefix)
    }

    pub(super) fn principal(&self, name: &str) -> Principal {
        Principal::new(format!("{}{name}", self.prefix))
    }
}

/// Returns the identity of the endpoint whose principal this is.
pub(super) fn identity_of(principal: &Principal) -> &str {
    principal.as_str().split(' ').next().unwrap_or_default()
}
