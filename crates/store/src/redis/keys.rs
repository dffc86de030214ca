//! The names of keys, events and channels.
//!
//! Everything of a session has the session in braces, so that a cluster keeps it together; the lists beside the sessions are
//! together under the prefix.

use steadfast_session::{NodeId, Principal, SessionId, StreamNo};

use crate::remote::backing::{EventKey, Listed};
use crate::remote::{class_code, class_of};

#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
    pub(super) agenda: String,
    pub(super) closed: String,
    pub(super) by_principal: String,
    pub(super) nodes: String,
    pub(super) pulse: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let list = |name: &str| format!("{{{prefix}}}:{name}");
        Self {
            prefix: prefix.to_owned(),
            agenda: list("agenda"),
            closed: list("closed"),
            by_principal: list("principals"),
            nodes: list("nodes"),
            pulse: list("pulse"),
        }
    }

    pub(super) fn rows(&self, session: SessionId) -> String {
        format!("{}:{{{}}}", self.prefix, session.text())
    }

    pub(super) fn log(&self, session: SessionId) -> String {
        format!("{}:{{{}}}:log", self.prefix, session.text())
    }

    /// The sessions in which a node may hold something.
    pub(super) fn sessions_of(&self, node: NodeId) -> String {
        format!("{{{}}}:node:{}", self.prefix, node_name(node))
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

/// How the lists name a session: its bytes, which are shorter than its text, and its principal.
pub(super) fn member(listed: &Listed) -> Vec<u8> {
    [listed.session.as_bytes(), listed.principal.as_str().as_bytes()].concat()
}

pub(super) fn listed_of(member: &[u8]) -> Option<Listed> {
    let (id, principal) = member.split_first_chunk()?;
    let principal = Principal::new(std::str::from_utf8(principal).ok()?);
    Some(Listed { session: SessionId::from_random(*id), principal })
}

/// An event's name says everything about it but its payload.
pub(super) fn event_name(key: &EventKey) -> String {
    format!("{}.{}.{}.{}", key.stream, key.seq, class_code(key.class), key.size)
}

pub(super) fn event_of(name: &[u8]) -> Option<EventKey> {
    let mut parts = std::str::from_utf8(name).ok()?.split('.');
    let mut number = || parts.next()?.parse::<u64>().ok();
    Some(EventKey {
        stream: StreamNo(number()?),
        seq: number()?,
        class: class_of(number()?)?,
        size: u32::try_from(number()?).ok()?,
    })
}
