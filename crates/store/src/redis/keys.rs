//! The names of keys, events and channels in Redis.
//!
//! All keys of a session have the session id in braces, so that a cluster keeps them in one slot.
//! The keys of the indexes have the prefix in braces, so that they share a slot as well.

use steadfast_session::{Class, NodeId, Principal, SessionId, StreamNo};

use crate::remote::database::{EventKey, IndexKey};

#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
    /// All sessions, by the time of their next sweep.
    pub(super) sweep_schedule: String,
    /// Sessions that have closed and are not removed yet.
    pub(super) closed: String,
    /// The principals, by the number of their open sessions.
    pub(super) principals: String,
    /// All nodes, by the time of their last heartbeat.
    pub(super) nodes: String,
    /// The last heartbeat of any node, and the end of the last time without any heartbeats.
    pub(super) pulse: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let index = |name: &str| format!("{{{prefix}}}:{name}");
        Self {
            prefix: prefix.to_owned(),
            sweep_schedule: index("agenda"),
            closed: index("closed"),
            principals: index("holders"),
            nodes: index("nodes"),
            pulse: index("pulse"),
        }
    }

    pub(super) fn rows(&self, session: SessionId) -> String {
        format!("{}:{{{}}}", self.prefix, session.text())
    }

    pub(super) fn log(&self, session: SessionId) -> String {
        format!("{}:{{{}}}:log", self.prefix, session.text())
    }

    /// Returns the key of the list of sessions in which a node may hold something.
    pub(super) fn sessions_of_node(&self, node: NodeId) -> String {
        format!("{{{}}}:node:{}", self.prefix, node_name(node))
    }

    /// Returns the key of the set of open sessions of a principal.
    pub(super) fn sessions_of_principal(&self, principal: &Principal) -> String {
        format!("{{{}}}:of:{}", self.prefix, principal.as_str())
    }

    pub(super) fn channel(&self, node: NodeId) -> String {
        format!("{}:news:{{{}}}", self.prefix, node_name(node))
    }
}

pub(super) fn node_name(node: NodeId) -> String {
    format!("{:016x}", node.0)
}

pub(super) fn node_of(name: &[u8]) -> Option<NodeId> {
    u64::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok().map(NodeId)
}

/// Returns how the indexes identify a session: the bytes of its id, which are shorter than its
/// text, and its principal.
pub(super) fn index_member(index_key: &IndexKey) -> Vec<u8> {
    [index_key.session.as_bytes(), index_key.principal.as_str().as_bytes()].concat()
}

pub(super) fn index_key_of(index_member: &[u8]) -> Option<IndexKey> {
    let (id, principal) = index_member.split_first_chunk()?;
    let principal = Principal::new(std::str::from_utf8(principal).ok()?);
    Some(IndexKey { session: SessionId::from_random(*id), principal })
}

/// Returns the name of an event, which contains everything about the event except its payload.
pub(super) fn event_name(key: &EventKey) -> String {
    format!("{}.{}.{}.{}", key.stream, key.seq, key.class.code(), key.size)
}

pub(super) fn event_of(name: &[u8]) -> Option<EventKey> {
    let mut parts = std::str::from_utf8(name).ok()?.split('.');
    let mut number = || parts.next()?.parse::<u64>().ok();
    Some(EventKey {
        stream: StreamNo(number()?),
        seq: number()?,
        class: Class::from_code(u8::try_from(number()?).ok()?)?,
        size: u32::try_from(number()?).ok()?,
    })
}
