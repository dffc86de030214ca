//! The connections for commands: what is sent, and what its failures mean.
//!
//! Requests are pipelined, so a connection may be shared; it does one thing after the other, though, and waits for the disk with
//! each. So there are a few, a request takes the one that has least to do, and the database flushes for several at once. That
//! is all that is needed of a pool, and nobody ever waits for a connection to be given back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::PostgresOptions;
use super::failure::{NoLine, is_without_schema, meaning, spoils_line, text};
use super::line::{Door, Line};
use super::schema;
use crate::error::StoreError;
use crate::remote::backing::Answer;

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Requests that one connection has in hand at once. More of them wait here, where waiting is no silence of the server.
const DEPTH: usize = 16;

/// How long the schema may take to be made or changed, waiting for others who do so included.
const MIGRATION: Duration = Duration::from_secs(60);

pub(super) struct Lines {
    door: Door,
    schema: String,
    response_timeout: Duration,
    /// How long a request waits until it can be sent.
    patience: Duration,
    turns: Semaphore,
    slots: Vec<Slot>,
    /// The schema is that of this release.
    is_ready: Cell<bool>,
}

/// A connection's place.
#[derive(Default)]
struct Slot {
    line: RefCell<Option<Rc<Line>>>,
    opening: tokio::sync::Mutex<()>,
    under_way: Cell<usize>,
}

impl Lines {
    pub(super) fn new(door: Door, options: &PostgresOptions) -> Self {
        let connections = options.connections.max(1);
        Self {
            door,
            schema: options.schema.clone(),
            response_timeout: options.response_timeout,
            patience: options.patience,
            turns: Semaphore::new(connections.saturating_mul(DEPTH).min(Semaphore::MAX_PERMITS)),
            slots: (0..connections).map(|_| Slot::default()).collect(),
            is_ready: Cell::new(false),
        }
    }

    /// Opens the first connection, and makes sure of the schema.
    pub(super) async fn begin(&self) -> Result<(), NoLine> {
        self.line(&self.slots[0]).await.map(drop)
    }

    /// Calls a function of the schema.
    pub(super) async fn call(&self, function: &'static str, params: Params<'_>) -> Answer<Vec<Row>> {
        let Ok(Ok(_turn)) = timeout(self.patience, self.turns.acquire()).await else {
            return Err(StoreError::Unavailable("too much is to be done before this".into()));
        };
        let least = self.slots.iter().min_by_key(|slot| slot.under_way.get());
        let slot = least.ok_or_else(|| StoreError::Unavailable("there is no connection".into()))?;
        let _busy = Busy::new(&slot.under_way);
        let line = self.line(slot).await?;
        let prepared = line.statement(&self.schema, function, params.len());
        let statement = match timeout(self.response_timeout, prepared).await {
            Ok(Ok(statement)) => statement,
            // Nothing but the question whether there is such a function has been sent.
            Ok(Err(error)) => {
                self.note(slot, &line, &error);
                return Err(StoreError::Unavailable(text(&error)));
            }
            Err(_) => {
                slot.give_up(&line);
                return Err(StoreError::Unavailable("no answer in time".into()));
            }
        };
        match timeout(self.response_timeout, line.client.query(&statement, params)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                self.note(slot, &line, &error);
                Err(meaning(&error))
            }
            Err(_) => {
                slot.give_up(&line);
                Err(StoreError::Unknown("no answer in time".into()))
            }
        }
    }

    async fn line(&self, slot: &Slot) -> Result<Rc<Line>, NoLine> {
        let _one = slot.opening.lock().await;
        if let Some(line) = slot.line.borrow().as_ref().filter(|line| !line.client.is_closed()) {
            return Ok(Rc::clone(line));
        }
        let mut line = self.door.open(|_| ()).await?;
        if !self.is_ready.get() {
            match timeout(MIGRATION, schema::prepare(&mut line.client, &self.schema)).await {
                Ok(prepared) => prepared?,
                Err(_) => return Err(NoLine::Unreachable("the schema is not ready in time".into())),
            }
            self.is_ready.set(true);
        }
        let line = Rc::new(line);
        slot.line.replace(Some(Rc::clone(&line)));
        Ok(line)
    }

    fn note(&self, slot: &Slot, line: &Rc<Line>, error: &Error) {
        if spoils_line(error) {
            slot.give_up(line);
        }
        if is_without_schema(error) {
            self.is_ready.set(false);
        }
    }
}

impl Slot {
    /// The next request gets another connection. Whatever else waits on this one is in doubt, as it would be behind it.
    fn give_up(&self, line: &Rc<Line>) {
        let mut current = self.line.borrow_mut();
        if current.as_ref().is_some_and(|current| Rc::ptr_eq(current, line)) {
            *current = None;
        }
        line.cut();
    }
}

/// Counts a request for as long as it is under way.
struct Busy<'a>(&'a Cell<usize>);

impl<'a> Busy<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
