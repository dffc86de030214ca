//! The connection on which other processes tell news. They are hints: while it is down they are lost, and whoever waits looks
//! from time to time anyway.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crate::remote::backing::Told;
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use tokio_postgres::Notification;

use super::failure::meaning;
use super::line::{Door, Line};
use crate::error::StoreError;
use crate::remote::backing::Answer;

/// How long to wait before a connection that cannot be had is tried again.
const PAUSE: Duration = Duration::from_millis(250);

/// How often to see whether the server is still there: nothing else is ever said on this connection.
const PROBE: Duration = Duration::from_secs(10);

pub(super) struct Listener {
    door: Door,
    response_timeout: Duration,
    news: mpsc::Sender<Told>,
    channels: RefCell<BTreeSet<String>>,
    line: RefCell<Option<Rc<Line>>>,
    opening: tokio::sync::Mutex<()>,
    ended: Rc<Notify>,
}

impl Listener {
    pub(super) fn start(door: Door, response_timeout: Duration, news: mpsc::Sender<Told>) -> Rc<Self> {
        let listener = Rc::new(Self {
            door,
            response_timeout,
            news,
            channels: RefCell::default(),
            line: RefCell::default(),
            opening: tokio::sync::Mutex::default(),
            ended: Rc::default(),
        });
        spawn_local(Rc::clone(&listener).keep_hearing());
        listener
    }

    /// Once this is answered, what others tell on the channel arrives.
    pub(super) async fn hear(&self, channel: String) -> Answer<()> {
        let line = self.line().await?;
        self.say(&line, &format!("LISTEN \"{channel}\"")).await?;
        self.channels.borrow_mut().insert(channel);
        Ok(())
    }

    pub(super) async fn stop_hearing(&self, channel: &str) -> Answer<()> {
        self.channels.borrow_mut().remove(channel);
        let line = self.line.borrow().clone();
        match line {
            Some(line) => self.say(&line, &format!("UNLISTEN \"{channel}\"")).await,
            None => Ok(()),
        }
    }

    /// A connection that hears all channels. Opened if there is none.
    async fn line(&self) -> Answer<Rc<Line>> {
        let _one = self.opening.lock().await;
        if let Some(line) = self.line.borrow().as_ref().filter(|line| !line.client.is_closed()) {
            return Ok(Rc::clone(line));
        }
        let (news, ended) = (self.news.clone(), Rc::clone(&self.ended));
        let hear = move |told: Option<Notification>| match told {
            // Beyond the bound it is lost, and found by looking from time to time.
            Some(told) => drop(Told::parse(told.payload()).map(|told| news.try_send(told))),
            None => ended.notify_one(),
        };
        let line = Rc::new(self.door.open(hear).await?);
        let channels: Vec<String> = self.channels.borrow().iter().cloned().collect();
        for channel in channels {
            self.say(&line, &format!("LISTEN \"{channel}\"")).await?;
        }
        self.line.replace(Some(Rc::clone(&line)));
        Ok(line)
    }

    async fn say(&self, line: &Line, command: &str) -> Answer<()> {
        match timeout(self.response_timeout, line.client.batch_execute(command)).await {
            Ok(said) => said.map_err(|error| meaning(&error)),
            Err(_) => Err(StoreError::Unknown("no answer in time".into())),
        }
    }

    /// Sees to it that there is a connection for as long as anybody listens.
    async fn keep_hearing(self: Rc<Self>) {
        loop {
            tokio::select! {
                () = self.ended.notified() => {}
                () = sleep(PROBE) => self.probe().await,
            }
            while !self.channels.borrow().is_empty()
                && let Err(error) = self.line().await
            {
                tracing::debug!(%error, "the database cannot tell news");
                sleep(PAUSE).await;
            }
        }
    }

    /// Drops a connection on which nobody answers.
    async fn probe(&self) {
        let line = self.line.borrow().clone();
        if let Some(line) = line
            && self.say(&line, "").await.is_err()
        {
            self.line.replace(None);
            line.cut();
        }
    }
}
