//! One connection.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::time::Duration;

use tokio::task::{AbortHandle, spawn_local};
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Notification, Statement};

use super::PostgresOptions;
use super::failure::{NoLine, text};
use super::tls::Tls;

/// Where the server is.
#[derive(Clone)]
pub(super) struct Door {
    config: Config,
    tls: Tls,
    connect_timeout: Duration,
}

impl Door {
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, NoLine> {
        let mut config = options.address.0.clone();
        config.connect_timeout(options.connect_timeout);
        let tls = match config.get_ssl_mode() {
            SslMode::Disable => Tls::none(),
            _ => Tls::load(options.ca.as_deref()).map_err(NoLine::Refused)?,
        };
        // Each of several hosts gets the time.
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(1);
        Ok(Self { config, tls, connect_timeout: options.connect_timeout * hosts })
    }

    /// Opens a connection. `hear` gets what the server tells unasked, then `None` when the connection has ended.
    pub(super) async fn open(
        &self,
        mut hear: impl FnMut(Option<Notification>) + 'static,
    ) -> Result<Line, NoLine> {
        let (client, mut connection) =
            match timeout(self.connect_timeout, self.config.connect(self.tls.clone())).await {
                Ok(connected) => connected.map_err(|error| NoLine::of(&error))?,
                Err(_) => return Err(NoLine::Unreachable("no connection in time".into())),
            };
        let task = spawn_local(async move {
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notification(told)) => hear(Some(told)),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(error = text(&error), "a connection to the database has ended");
                        break;
                    }
                }
            }
            // Whoever hears of the end finds it closed.
            drop(connection);
            hear(None);
        });
        Ok(Line { client, statements: RefCell::default(), task: task.abort_handle() })
    }
}

pub(super) struct Line {
    pub(super) client: Client,
    statements: RefCell<HashMap<&'static str, Statement>>,
    task: AbortHandle,
}

impl Line {
    /// The statement that calls a function of the schema. Prepared once.
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
        let places: Vec<String> = (1..=params).map(|no| format!("${no}")).collect();
        let text = format!("SELECT * FROM \"{schema}\".{function}({})", places.join(", "));
        let statement = self.client.prepare(&text).await?;
        self.statements.borrow_mut().insert(function, statement.clone());
        Ok(statement)
    }

    /// Ends it, however long the server keeps silent. Whoever waits on it is told.
    pub(super) fn cut(&self) {
        self.task.abort();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.cut();
    }
}
