//! [`HintListener`]: the connection on which hints of other processes arrive (`LISTEN`). Hints that
//! are sent while the connection is down are lost. Nodes find the changes by polling.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crate::remote::database::ChangeHint;
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use tokio_postgres::Notification;

use super::connection::{Connection, Connector};
use super::errors::classify_error;
use crate::error::StoreError;
use crate::remote::database::StoreResult;

/// The pause before another attempt to reconnect.
const RECONNECT_DELAY: Duration = Duration::from_millis(250);

/// How often to check that the server still responds. No other request is sent on this connection.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

pub(super) struct HintListener {
    connector: Connector,
    response_timeout: Duration,
    hints: mpsc::Sender<ChangeHint>,
    /// The channels to listen on.
    channels: RefCell<BTreeSet<String>>,
    connection: RefCell<Option<Rc<Connection>>>,
    /// Held while the connection is opened.
    opening: tokio::sync::Mutex<()>,
    /// Notified when the connection has ended.
    ended: Rc<Notify>,
}

impl HintListener {
    /// Starts a task that keeps the connection open.
    pub(super) fn start(
        connector: Connector,
        response_timeout: Duration,
        hints: mpsc::Sender<ChangeHint>,
    ) -> Rc<Self> {
        let listener = Rc::new(Self {
            connector,
            response_timeout,
            hints,
            channels: RefCell::default(),
            connection: RefCell::default(),
            opening: tokio::sync::Mutex::default(),
            ended: Rc::default(),
        });
        spawn_local(Rc::clone(&listener).keep_connected());
        listener
    }

    /// Subscribes to a channel. When this returns, hints on the channel arrive.
    pub(super) async fn listen(&self, channel: String) -> StoreResult<()> {
        let connection = self.connection().await?;
        self.execute(&connection, &format!("LISTEN \"{channel}\"")).await?;
        self.channels.borrow_mut().insert(channel);
        Ok(())
    }

    pub(super) async fn unlisten(&self, channel: &str) -> StoreResult<()> {
        self.channels.borrow_mut().remove(channel);
        let connection = self.connection.borrow().clone();
        match connection {
            Some(connection) => self.execute(&connection, &format!("UNLISTEN \"{channel}\"")).await,
            None => Ok(()),
        }
    }

    /// Returns the connection, subscribed to all channels. Opens it if there is none.
    async fn connection(&self) -> StoreResult<Rc<Connection>> {
        let _guard = self.opening.lock().await;
        if let Some(connection) =
            self.connection.borrow().as_ref().filter(|connection| !connection.client.is_closed())
        {
            return Ok(Rc::clone(connection));
        }
        let (hints, ended) = (self.hints.clone(), Rc::clone(&self.ended));
        let on_notification = move |notification: Option<Notification>| match notification {
            // If the channel is full, the hint is dropped, and nodes find the change by polling.
            Some(notification) => {
                let hint = ChangeHint::parse(notification.payload());
                let _ = hint.map(|hint| hints.try_send(hint));
            }
            None => ended.notify_one(),
        };
        let connection = Rc::new(self.connector.open(on_notification).await?);
        let channels: Vec<String> = self.channels.borrow().iter().cloned().collect();
        for channel in channels {
            self.execute(&connection, &format!("LISTEN \"{channel}\"")).await?;
        }
        self.connection.replace(Some(Rc::clone(&connection)));
        Ok(connection)
    }

    async fn execute(&self, connection: &Connection, command: &str) -> StoreResult<()> {
        match timeout(self.response_timeout, connection.client.batch_execute(command)).await {
            Ok(result) => result.map_err(|error| classify_error(&error)),
            Err(_) => Err(StoreError::Unknown("the database did not reply in time".into())),
        }
    }

    /// Reconnects whenever the connection has ended and there are channels.
    async fn keep_connected(self: Rc<Self>) {
        loop {
            tokio::select! {
                () = self.ended.notified() => {}
                () = sleep(PROBE_INTERVAL) => self.probe().await,
            }
            while !self.channels.borrow().is_empty()
                && let Err(error) = self.connection().await
            {
                tracing::debug!(%error, "cannot listen for change hints; nodes poll until the connection is back");
                sleep(RECONNECT_DELAY).await;
            }
        }
    }

    /// Closes the connection if the server does not respond on it.
    async fn probe(&self) {
        let connection = self.connection.borrow().clone();
        if let Some(connection) = connection
            && self.execute(&connection, "").await.is_err()
        {
            self.connection.replace(None);
            connection.close();
        }
    }
}
