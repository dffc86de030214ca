//! Which processes are alive, without heartbeats.
//!
//! A node holds an exclusive lock on a file of its own, `<database>-node-<id>`, from `join` until its process
//! ends. The kernel releases the lock however the process ends, `kill -9` included, and never before. So whoever
//! can take the lock of a listed node knows that it is dead, at once and for certain: there is no timeout to
//! tune, a process that was stopped or swapped out for an hour is not taken for dead, and clocks do not matter.
//! It works because all users of one SQLite file in WAL mode are on one machine, which SQLite itself demands.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use steadfast_session::NodeId;

/// The locks that this store holds for the nodes that joined through it.
#[derive(Debug)]
pub(super) struct Locks {
    database: PathBuf,
    held: HashMap<NodeId, File>,
}

impl Locks {
    pub(super) fn new(database: &Path) -> Self {
        Self { database: database.to_owned(), held: HashMap::new() }
    }

    /// Takes the lock of a node of this process.
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

    /// Whether a node joined through this store.
    pub(super) fn holds(&self, node: NodeId) -> bool {
        self.held.contains_key(&node)
    }

    /// Whether the process of a listed node is gone. In doubt it is not.
    pub(super) fn is_dead(&self, node: NodeId) -> bool {
        !self.held.contains_key(&node) && is_dead(&self.database, node)
    }

    /// Gives up the lock of a node that is not listed any more, and removes its file.
    pub(super) fn release(&mut self, node: NodeId) {
        if let Err(error) = std::fs::remove_file(self.path(node))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%node, %error, "cannot remove the lock file of a node that is gone");
        }
        self.held.remove(&node);
    }

    fn path(&self, node: NodeId) -> PathBuf {
        path(&self.database, node)
    }
}

/// Whether the process of a listed node is gone, as far as its file tells. In doubt it is not: two who look at the same
/// moment may take each other for the node, once.
pub(super) fn is_dead(database: &Path, node: NodeId) -> bool {
    match OpenOptions::new().write(true).open(path(database, node)) {
        Ok(file) => match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%node, %error, "cannot tell whether a node is alive");
                false
            }
        },
        // A node is listed only while its file exists, so whoever removed the file had found it dead.
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => {
            tracing::warn!(%node, %error, "cannot tell whether a node is alive");
            false
        }
    }
}

fn path(database: &Path, node: NodeId) -> PathBuf {
    let mut path = database.to_owned().into_os_string();
    path.push(format!("-node-{:016x}", node.0));
    path.into()
}
