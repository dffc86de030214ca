//! The replicas of a server that is reached over HTTP: name resolution, load, probes and health
//! checks.

pub(crate) mod dns;
pub(crate) mod health;
pub(crate) mod replica;
pub(crate) mod replica_set;
