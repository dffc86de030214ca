//! Subscriptions of clients (`subscriptions/listen`), and the changes that are sent to them.
//!
//! A change is sent to every subscription of this node whose filter matches. Nothing is stored: a
//! subscription begins with its acknowledgement and ends with its request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use steadfast_wire::subscriptions;

use crate::stateless::Exchange;

/// A change that clients can subscribe to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    ToolsList,
    PromptsList,
    ResourcesList,
    Resource {
        uri: String,
    },
    /// A task has changed. `task` is the JSON text of all its members, without the braces.
    Task {
        id: String,
        task: String,
    },
}

/// Which changes a subscription receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeFilter {
    pub tools_list: bool,
    pub prompts_list: bool,
    pub resources_list: bool,
    pub resources: Vec<String>,
    pub tasks: Vec<String>,
}

impl ChangeFilter {
    pub fn matches(&self, change: &Change) -> bool {
        match change {
            Change::ToolsList => self.tools_list,
            Change::PromptsList => self.prompts_list,
            Change::ResourcesList => self.resources_list,
            Change::Resource { uri } => self.resources.iter().any(|wanted| is_within(uri, wanted)),
            Change::Task { id, .. } => self.tasks.contains(id),
        }
    }
}

/// A subscription to a resource includes the resources below it.
fn is_within(uri: &str, of: &str) -> bool {
    uri.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || of.ends_with('/'))
}

impl Change {
    /// Returns the notification for one subscription.
    pub(crate) fn message(&self, subscription: &steadfast_wire::RequestId) -> Bytes {
        let (method, members) = match self {
            Self::ToolsList => ("notifications/tools/list_changed", String::new()),
            Self::PromptsList => ("notifications/prompts/list_changed", String::new()),
            Self::ResourcesList => ("notifications/resources/list_changed", String::new()),
            Self::Resource { uri } => (
                "notifications/resources/updated",
                format!(r#""uri":{}"#, steadfast_wire::rpc::json_string(uri)),
            ),
            Self::Task { task, .. } => ("notifications/tasks", task.clone()),
        };
        subscriptions::notification(method, &members, subscription).into()
    }
}

/// The acknowledged subscriptions of this node.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, (ChangeFilter, Weak<Exchange>)>>,
}

/// An entry of [`Subscriptions`]. Dropping it ends the subscription.
#[derive(Debug)]
pub(crate) struct Subscription {
    no: u64,
    of: Arc<Subscriptions>,
}

impl Subscriptions {
    pub(crate) fn open(self: &Arc<Self>, filter: ChangeFilter, exchange: &Arc<Exchange>) -> Subscription {
        let no = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(no, (filter, Arc::downgrade(exchange)));
        Subscription { no, of: Arc::clone(self) }
    }

    pub(crate) fn publish(&self, change: &Change) {
        // Collected first: sending may drop the last reference to an exchange, whose subscription
        // then takes this lock.
        let concerned: Vec<Arc<Exchange>> = self
            .lock()
            .values()
            .filter(|(filter, _)| filter.matches(change))
            .filter_map(|(_, exchange)| exchange.upgrade())
            .collect();
        for exchange in concerned {
            exchange.send_change(change.message(exchange.id()));
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (ChangeFilter, Weak<Exchange>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.of.lock().remove(&self.no);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_matches_what_it_names_and_nothing_else() {
        let filter = ChangeFilter {
            tools_list: true,
            resources: vec!["file:///a".into(), "db://x/".into()],
            tasks: vec!["t1".into()],
            ..ChangeFilter::default()
        };
        let resource = |uri: &str| Change::Resource { uri: uri.into() };
        let task = |id: &str| Change::Task { id: id.into(), task: String::new() };
        for (change, wanted) in [
            (Change::ToolsList, true),
            (Change::PromptsList, false),
            (Change::ResourcesList, false),
            (resource("file:///a"), true),
            (resource("file:///a/b"), true),
            (resource("file:///ab"), false),
            (resource("db://x/y"), true),
            (resource("file:///"), false),
            (task("t1"), true),
            (task("t2"), false),
        ] {
            assert_eq!(filter.matches(&change), wanted, "{change:?}");
        }
    }
}
