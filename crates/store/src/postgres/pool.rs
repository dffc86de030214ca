//! [`Pool`]: the connections for commands.
//!
//! Requests are pipelined, so several requests share a connection. A connection processes them one
//! after the other, and waits for the disk with each commit. So the pool has several connections,
//! each request uses the one with the fewest requests in flight, and the database flushes its log
//! for several commits at once. No request ever waits for a connection to be returned.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::connection::{Connection, Connector};
use super::errors::{ConnectError, classify_error, is_schema_missing, should_discard_connection, text};
use super::{PostgresOptions, migrations};
use crate::error::StoreError;
use crate::remote::database::StoreResult;

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// How many requests may be in flight on one connection. Further requests wait in this process,
/// where the wait does not count as a server that does not respond.
const MAX_PIPELINED_REQUESTS: usize = 16;

/// How long the migration of the schema may take, including the wait for another process that
/// migrates it.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Pool {
    connector: Connector,
    schema: String,
    response_timeout: Duration,
    /// How long a request may wait until it can be sent.
    max_wait: Duration,
    permits: Semaphore,
    slots: Vec<PoolSlot>,
    /// True once the schema is known to have the version of this release.
    is_ready: Cell<bool>,
}

#[derive(Default)]
struct PoolSlot {
    connection: RefCell<Option<Rc<Connection>>>,
    /// Held while the connection is opened.
    opening: tokio::sync::Mutex<()>,
    in_flight: Cell<usize>,
}

impl Pool {
    pub(super) fn new(connector: Connector, options: &PostgresOptions) -> Self {
        let connections = options.connections.max(1);
        Self {
            connector,
            schema: options.schema.clone(),
            response_timeout: options.response_timeout,
            max_wait: options.retry_window,
            permits: Semaphore::new(
                connections.saturating_mul(MAX_PIPELINED_REQUESTS).min(Semaphore::MAX_PERMITS),
            ),
            slots: (0..connections).map(|_| PoolSlot::default()).collect(),
            is_ready: Cell::new(false),
        }
    }

    /// Opens the first connection and migrates the schema.
    pub(super) async fn open_first(&self) -> Result<(), ConnectError> {
        self.connection(&self.slots[0]).await.map(drop)
    }

    pub(super) async fn call(&self, function: &'static str, params: Params<'_>) -> StoreResult<Vec<Row>> {
        let Ok(Ok(_permit)) = timeout(self.max_wait, self.permits.acquire()).await else {
            return Err(StoreError::Unavailable("too many requests wait for the database".into()));
        };
        let least_used = self.slots.iter().min_by_key(|slot| slot.in_flight.get());
        let slot = least_used.ok_or_else(|| StoreError::Unavailable("the pool has no connection".into()))?;
        let _in_flight = InFlight::new(&slot.in_flight);
        let connection = self.connection(slot).await?;
        let prepared = connection.statement(&self.schema, function, params.len());
        let statement = match timeout(self.response_timeout, prepared).await {
            Ok(Ok(statement)) => statement,
            // Only the `PREPARE` was sent, so the function has not run.
            Ok(Err(error)) => {
                self.note_error(slot, &connection, &error);
                return Err(StoreError::Unavailable(text(&error)));
            }
            Err(_) => {
                slot.discard(&connection);
                return Err(StoreError::Unavailable("the database did not reply in time".into()));
            }
        };
        match timeout(self.response_timeout, connection.client.query(&statement, params)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                self.note_error(slot, &connection, &error);
                Err(classify_error(&error))
            }
            Err(_) => {
                slot.discard(&connection);
                Err(StoreError::Unknown("the database did not reply in time".into()))
            }
        }
    }

    /// Returns the connection of a slot. Opens it if there is none.
    async fn connection(&self, slot: &PoolSlot) -> Result<Rc<Connection>, ConnectError> {
        let _guard = slot.opening.lock().await;
        if let Some(connection) =
            slot.connection.borrow().as_ref().filter(|connection| !connection.client.is_closed())
        {
            return Ok(Rc::clone(connection));
        }
        let mut connection = self.connector.open(|_| ()).await?;
        if !self.is_ready.get() {
            match timeout(MIGRATION_TIMEOUT, migrations::prepare(&mut connection.client, &self.schema)).await
            {
                Ok(prepared) => prepared?,
                Err(_) => return Err(ConnectError::Unreachable("migrating the schema took too long".into())),
            }
            self.is_ready.set(true);
        }
        let connection = Rc::new(connection);
        slot.connection.replace(Some(Rc::clone(&connection)));
        Ok(connection)
    }

    /// Discards the connection, or checks the schema again, if the error requires it.
    fn note_error(&self, slot: &PoolSlot, connection: &Rc<Connection>, error: &Error) {
        if should_discard_connection(error) {
            slot.discard(connection);
        }
        if is_schema_missing(error) {
            self.is_ready.set(false);
        }
    }
}

impl PoolSlot {
    /// Closes the connection, so that the next request opens another one. The outcome of other
    /// requests on this connection becomes unknown; they would have to wait behind the stuck one
    /// anyway.
    fn discard(&self, connection: &Rc<Connection>) {
        let mut current = self.connection.borrow_mut();
        if current.as_ref().is_some_and(|current| Rc::ptr_eq(current, connection)) {
            *current = None;
        }
        connection.close();
    }
}

/// Counts a request as in flight until it is dropped.
struct InFlight<'a>(&'a Cell<usize>);

impl<'a> InFlight<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
