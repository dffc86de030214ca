//! Gates: where handlers wait for a test, and where a test waits for handlers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::within;

/// Gates by name. A gate is closed until it is opened, and then stays open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gates(Arc<Mutex<HashMap<String, Arc<Gate>>>>);

#[derive(Debug)]
struct Gate {
    open: watch::Sender<bool>,
    reached: watch::Sender<usize>,
}

impl Gates {
    /// A handler arrives and waits.
    pub(crate) async fn pass(&self, name: &str) {
        let gate = self.gate(name);
        gate.reached.send_modify(|count| *count += 1);
        // The sender is in our hands, so this ends only when the gate is open.
        let _ = gate.open.subscribe().wait_for(|open| *open).await;
    }

    /// A handler was here; it does not wait.
    pub(crate) fn mark(&self, name: &str) {
        self.gate(name).reached.send_modify(|count| *count += 1);
    }

    pub(crate) fn open(&self, name: &str) {
        self.gate(name).open.send_replace(true);
    }

    /// How many have arrived so far.
    pub(crate) fn count(&self, name: &str) -> usize {
        *self.gate(name).reached.borrow()
    }

    /// Waits until as many have arrived.
    pub(crate) async fn reached(&self, name: &str, count: usize) {
        let mut reached = self.gate(name).reached.subscribe();
        let arrived = reached.wait_for(|now| *now >= count);
        within(&format!("{count} arrivals at {name}"), arrived).await.expect("the gate exists");
    }

    fn gate(&self, name: &str) -> Arc<Gate> {
        let mut gates = self.0.lock().expect("the lock is not poisoned");
        let made = || Arc::new(Gate { open: watch::Sender::new(false), reached: watch::Sender::new(0) });
        Arc::clone(gates.entry(name.to_owned()).or_insert_with(made))
    }
}
