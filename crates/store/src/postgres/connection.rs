//! [`Connector`] opens connections to PostgreSQL. [`Connection`] is one of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::time::Duration;

use tokio::task::{AbortHandle, spawn_local};
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Notification, Statement};

use super::PostgresOptions;
use super::errors::{ConnectError, text};
use super::tls::Tls;

/// Opens connections to the configured server.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    tls: Tls,
    connect_timeout: Duration,
}

impl Connector {
    /// Prepares a connector. Fails if the certificate authorities cannot be loaded.
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, ConnectError> {
        let mut config = options.address.0.clone();
        config.connect_timeout(options.connect_timeout);
        let tls = match config.get_ssl_mode() {
            SslMode::Disable => Tls::none(),
            _ => Tls::load(options.ca.as_deref()).map_err(ConnectError::Refused)?,
        };
        // The library tries the hosts one after the other, and each may take the configured time.
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(1);
        Ok(Self { config, tls, connect_timeout: options.connect_timeout * hosts })
    }

    /// Opens a connection. `on_notification` gets the notifications that arrive, then `None` when
    /// the connection has ended. Fails with [`ConnectError`].
    pub(super) async fn open(
        &self,
        mut on_notification: impl FnMut(Option<Notification>) + 'static,
    ) -> Result<Connection, ConnectError> {
        let (client, mut connection) =
            match timeout(self.connect_timeout, self.config.connect(self.tls.clone())).await {
                Ok(connected) => connected.map_err(|error| ConnectError::of(&error))?,
                Err(_) => return Err(ConnectError::Unreachable("connecting took too long".into())),
            };
        let task = spawn_local(async move {
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notification(notification)) => on_notification(Some(notification)),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(error = text(&error), "a connection to PostgreSQL has ended");
                        break;
                    }
                }
            }
            // A listener that learns of the end must find the connection closed.
            drop(connection);
            on_notification(None);
        });
        Ok(Connection { client, statements: RefCell::default(), task: task.abort_handle() })
    }
}

/// One connection. Dropping it closes it.
pub(super) struct Connection {
    pub(super) client: Client,
    statements: RefCell<HashMap<&'static str, Statement>>,
    task: AbortHandle,
}

impl Connection {
    /// Returns the prepared statement that calls a function of the schema. Prepares it on first
    /// use.
    pub(super) async fn statement(
        &self,
        schema: &str,
        function: &'static str,
        params: usize,
    ) -> Result<Statement, Error> {
        let known = self.statements.borrow().get(function).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let placeholders: Vec<String> = (1..=params).map(|no| format!("${no}")).collect();
        let text = format!("SELECT * FROM \"{schema}\".{function}({})", placeholders.join(", "));
        let statement = self.client.prepare(&text).await?;
        self.statements.borrow_mut().insert(function, statement.clone());
        Ok(statement)
    }

    /// Closes the connection at once, even if the server does not respond. Requests that wait for a
    /// reply fail.
    pub(super) fn close(&self) {
        self.task.abort();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}
