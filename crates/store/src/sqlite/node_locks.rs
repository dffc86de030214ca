//! Detects dead nodes by file locks, without heartbeats.
//!
//! A node holds an exclusive lock on a file of its own, `<database>-node-<id>`, from `join` until
//! its process ends. The kernel releases the lock when the process ends, also after `kill -9`, and
//! never before. A process that can take the lock of a registered node therefore knows at once and
//! for certain that the node is dead. There is no timeout to tune, a process that was stopped or
//! swapped out for an hour does not count as dead, and clocks do not matter. This works because all
//! processes that use a SQLite file in WAL mode must be on one machine.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use steadfast_session::NodeId;

/// The locks of the nodes that have joined through this store.
#[derive(Debug)]
pub(super) struct NodeLocks {
    database: PathBuf,
    held: HashMap<NodeId, File>,
}

impl NodeLocks {
    pub(super) fn new(database: &Path) -> Self {
        Self { database: database.to_owned(), held: HashMap::new() }
    }

    /// Takes the lock of a local node. Fails if the file cannot be created or is locked.
    pub(super) fn hold(&mut self, node: NodeId) -> io::Result<()> {
        if self.held.contains_key(&node) {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(self.path(node))?;
        file.try_lock().map_err(io::Error::from)?;
        self.held.insert(node, file);
        Ok(())
    }

    /// Returns true if a node has joined through this store.
    pub(super) fn holds(&self, node: NodeId) -> bool {
        self.held.contains_key(&node)
    }

    /// Returns true if the process of a registered node has ended. In doubt it returns false.
    pub(super) fn is_dead(&self, node: NodeId) -> bool {
        !self.held.contains_key(&node) && is_dead(&self.database, node)
    }

    /// Releases the lock of a node that is not registered any more, and removes its file.
    pub(super) fn release(&mut self, node: NodeId) {
        if let Err(error) = std::fs::remove_file(self.path(node))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%node, %error, "cannot remove the lock file of a node that has ended");
        }
        self.held.remove(&node);
    }

    fn path(&self, node: NodeId) -> PathBuf {
        path(&self.database, node)
    }
}

/// Returns true if the process of a registered node has ended, according to its lock file. In doubt
/// it returns false: two processes that check at the same moment may each see the other's lock,
/// once.
pub(super) fn is_dead(database: &Path, node: NodeId) -> bool {
    match OpenOptions::new().write(true).open(path(database, node)) {
        Ok(file) => match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%node, %error, "cannot check whether a node is alive; assuming that it is");
                false
            }
        },
        // A node is registered only while its file exists. So the process that removed the file had
        // found the node dead.
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => {
            tracing::warn!(%node, %error, "cannot check whether a node is alive; assuming that it is");
            false
        }
    }
}

fn path(database: &Path, node: NodeId) -> PathBuf {
    let mut path = database.to_owned().into_os_string();
    path.push(format!("-node-{:016x}", node.0));
    path.into()
}
