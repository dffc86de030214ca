//! A stateless request as its backend sees it.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::{Class, Principal};
use steadfast_wire::RequestId;
use tokio_util::sync::CancellationToken;

use crate::backend::Denial;
use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::stateless::{Change, ChangeFilter, Exchange};

/// A stateless request in flight.
#[derive(Clone, Debug)]
pub struct ExchangeHandle {
    pub(super) engine: Arc<Engine>,
    pub(super) exchange: Arc<Exchange>,
}

impl ExchangeHandle {
    /// The request id that the client chose.
    pub fn id(&self) -> &RequestId {
        self.exchange.id()
    }

    pub fn principal(&self) -> &Principal {
        self.exchange.principal()
    }

    /// Cancelled when the client disconnects and does not resume in time, the deadline passes, or
    /// the node shuts down.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.exchange.cancel
    }

    /// Returns true for `subscriptions/listen`.
    pub fn is_subscription(&self) -> bool {
        self.exchange.is_subscription()
    }

    /// Reports that the server denied the client's credentials; the backend must answer with the
    /// denial's error. If nothing was sent before that answer, the response carries the denial as
    /// its status and challenge.
    pub fn deny(&self, denial: Denial) {
        self.exchange.deny(denial);
    }

    /// Reports that the server accepted the client's credentials, so that the HTTP layer does not
    /// wait for a denial.
    pub fn accept_credentials(&self) {
        self.exchange.accept_credentials();
    }

    /// Sends a notification before the answer.
    pub fn notify(&self, class: Class, payload: Bytes) -> Result<(), Refusal> {
        self.exchange.send(class, payload)
    }

    /// Acknowledges a subscription: changes that match the filter are sent from now on. `payload`
    /// is the JSON text of the acknowledgement, which is sent first.
    pub fn acknowledge(&self, filter: ChangeFilter, payload: Bytes) {
        self.exchange.acknowledge(&self.engine.exchanges.subscriptions, filter, payload);
    }

    /// Sends a change to this subscription only.
    pub fn send_change(&self, change: &Change) {
        self.exchange.send_change(change.message(self.id()));
    }

    /// Sends a change to every subscription of this node whose filter matches.
    pub fn publish(&self, change: &Change) {
        self.engine.publish(change);
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}
